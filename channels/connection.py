"""One connection: opened by libcurl, spoken over by us, one call at a time.

libcurl resolves, connects, goes through a proxy and does TLS (CURLOPT_CONNECT_ONLY). The request is
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
from channels.sockets import PlainWire, TlsWire, Wire

_MS: Final = 1_000
_CODES: Final = {
    pycurl.E_COULDNT_RESOLVE_PROXY: "dns",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
}
"""Only words for people; the phase does not depend on them."""


class Connection:
    """Belongs to one call at a time; the transport's pool hands it from thread to thread.

    After a failure, and when the provider closed it, the next call opens it anew with the same handle,
    which keeps libcurl's names, TLS sessions and parsed authorities.
    """

    def __init__(
        self,
        ca_bundle: str,
        *,
        proxy: str = "",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.used_at = 0.0
        """Monotonic; written when a call ends, read by the transport's janitor."""
        self._clock = clock
        self._wire: Wire | None = None
        """The open connection; None: there is none that may be used."""
        self._curl = _easy(ca_bundle, proxy)

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
        self._wire = None
        self._curl.close()

    def _alive(self) -> Wire | None:
        """The kept connection if it may carry a call, as far as can be known. One that has something
        to say before it was asked has either ended, and what is written to it would be in doubt for
        nothing; or it would answer this call with what belongs to another."""
        wire = self._wire
        return wire if wire is not None and wire.silent() else None

    def _open(self, url: httpx.URL, timeout_s: float, connect_s: float) -> Wire | Failure:
        curl = self._curl
        self._wire = None
        curl.setopt(pycurl.URL, str(url))
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * _MS)))
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * _MS)))
        try:
            curl.perform()
        except pycurl.error as exc:
            number, message = _told(exc)
            return Failure(Phase.NOT_WRITTEN, _CODES.get(number, "connect"), message)
        descriptor = curl.getinfo(pycurl.ACTIVESOCKET)
        plain = url.scheme == "http"
        self._wire = PlainWire(descriptor) if plain else TlsWire(curl, descriptor)
        return self._wire

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


def _easy(ca_bundle: str, proxy: str) -> pycurl.Curl:
    """A handle that connects, and takes nothing from its surroundings: no proxy, no netrc."""
    curl = pycurl.Curl()
    for option, value in (
        (pycurl.CONNECT_ONLY, 1),
        (pycurl.NOSIGNAL, 1),  # signals and threads do not go together
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PROXY, proxy),
        (pycurl.NOPROXY, ""),
        (pycurl.HTTPPROXYTUNNEL, 1),
        (pycurl.SSL_VERIFYPEER, 1),
        (pycurl.SSL_VERIFYHOST, 2),
        (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),  # or later
        (pycurl.CAINFO, ca_bundle),
        (pycurl.TCP_KEEPALIVE, 1),
    ):
        curl.setopt(option, value)
    return curl
