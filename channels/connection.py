"""One connection: opened by libcurl, spoken over by us, one call at a time.

libcurl resolves, connects and goes through a proxy (CURLOPT_CONNECT_ONLY). The request is
written by us (channels/exchange.py), because only who writes knows what was written. What libcurl's own
HTTP would do differently, and cost: docs/decisions/020-transport.md.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

import httpx
import pycurl

from channels.channel import Failure, Phase
from channels.exchange import Exchange
from channels.http1 import written
from channels.sockets import PlainWire, Wire
from channels.tls import TlsPeer
from channels.tls_wire import TlsWire

_MS: Final = 1_000
_CODES: Final = {
    pycurl.E_COULDNT_RESOLVE_PROXY: "dns",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
}
"""Only words for people; the phase does not depend on them."""


class Connection:
    """Belongs to one call at a time; the transport's pool hands it from thread to thread.

    After a failure, and when the provider closed it, the next call opens it anew with the same handle,
    which keeps libcurl's names.
    """

    def __init__(
        self,
        peer: TlsPeer | None = None,
        *,
        proxy: str = "",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`peer`: for https. `proxy`: by http alone."""
        self.used_at = 0.0
        """Monotonic; written when a call ends, read by the transport's janitor."""
        self._clock = clock
        self._wire: Wire | None = None
        """The open connection; None: there is none that may be used."""
        self._peer = peer
        self._curl = _easy(proxy)

    def begin(
        self, request: httpx.Request, timeout_s: float, connect_s: float
    ) -> Exchange | Failure:
        """Write the whole request. Raises BadRequest, and then nothing was sent."""
        data = written(request)
        deadline = monotonic() + timeout_s
        wire = self._alive() or self._open(request.url, timeout_s, connect_s)
        if isinstance(wire, Failure):
            return wire
        exchange = Exchange(request, wire, deadline - timeout_s, deadline, self._ended)
        return exchange.write(data) or exchange

    def close(self) -> None:
        """Close it for good."""
        if isinstance(self._wire, TlsWire):
            self._wire.say_goodbye()
        self._wire = None
        self._curl.close()

    def _alive(self) -> Wire | None:
        """The kept connection if it may carry a call, as far as can be known. One that has something
        to say before it was asked has either ended, and what is written to it would be in doubt for
        nothing; or it would answer this call with what belongs to another."""
        wire = self._wire
        return wire if wire is not None and wire.silent() else None

    def _open(self, url: httpx.URL, timeout_s: float, connect_s: float) -> Wire | Failure:
        curl, started = self._curl, monotonic()
        self._wire = None
        curl.setopt(pycurl.URL, _address(url))
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * _MS)))
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * _MS)))
        try:
            curl.perform()
        except pycurl.error as exc:
            number, message = _told(exc)
            return Failure(Phase.NOT_WRITTEN, _CODES.get(number, "connect"), message)
        wire = PlainWire(curl.getinfo(pycurl.ACTIVESOCKET))
        if self._peer is None:
            self._wire = wire
            return wire
        return self._secured(wire, self._peer, started + min(timeout_s, connect_s) - monotonic())

    def _secured(self, wire: PlainWire, peer: TlsPeer, left_s: float) -> Wire | Failure:
        """With TLS; connecting and the handshake share their time."""
        try:
            secured = TlsWire(wire, peer)
            secured.open(left_s)
        except TimeoutError:
            wire.hang_up()
            return Failure(Phase.NOT_WRITTEN, "timeout", "the TLS handshake did not end in time")
        except (OSError, ValueError) as exc:  # ValueError: a name that no certificate can be for
            wire.hang_up()
            return Failure(Phase.NOT_WRITTEN, "tls", str(exc))
        self._wire = secured
        return secured

    def _ended(self, clean: bool) -> None:
        """The exchange is over; unless it ended clean, no other call goes over this wire."""
        wire = self._wire
        if not clean and wire is not None:
            self._wire = None
            wire.hang_up()
        self.used_at = self._clock()


def _told(exc: pycurl.error) -> tuple[int, str]:
    number, message = exc.args[0], exc.args[-1]
    return int(number), str(message)


def _address(url: httpx.URL) -> str:
    """Where libcurl connects to, as far as a socket goes."""
    if url.scheme != "https":
        return str(url)
    port = "" if url.port else ":443"
    return f"http://{url.netloc.decode('ascii')}{port}"


def _easy(proxy: str) -> pycurl.Curl:
    """A handle that connects, and takes nothing from its surroundings: no proxy, no netrc."""
    curl = pycurl.Curl()
    for option, value in (
        (pycurl.CONNECT_ONLY, 1),
        (pycurl.NOSIGNAL, 1),  # signals and threads do not go together
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PROXY, proxy),
        (pycurl.NOPROXY, ""),
        (pycurl.HTTPPROXYTUNNEL, 1),
        (pycurl.TCP_KEEPALIVE, 1),
    ):
        curl.setopt(option, value)
    return curl
