"""One connection: opened by libcurl, spoken over by us, one call at a time.

libcurl resolves, connects, goes through a proxy and does TLS (CURLOPT_CONNECT_ONLY). The request is
written here, because only who writes knows what was written:

    opening failed, or not every byte was taken     NOT_WRITTEN: nobody can act on a part of a request
    every byte was taken, and no whole answer came  WRITTEN

No error's name or number is asked, and nothing is ever written a second time. What libcurl's own HTTP
would do differently, and cost: docs/decisions/020-transport.md.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import inf
from time import monotonic
from typing import Final

import httpx
import pycurl

from channels.answer import Answer
from channels.channel import Failure, Phase
from channels.failures import late
from channels.http1 import BadAnswer, Reader, written
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
        self._sent = 0
        """Bytes of the present request that were taken."""
        self._curl = _easy(ca_bundle, proxy)

    def perform(
        self, request: httpx.Request, timeout_s: float, connect_s: float
    ) -> Answer | Failure:
        """Make the call within the deadline. Raises BadRequest, and then nothing was sent."""
        data = written(request)
        started = monotonic()
        deadline = started + timeout_s
        wire = self._alive() or self._open(request.url, timeout_s, connect_s)
        if isinstance(wire, Failure):
            return wire
        clean = False
        try:
            answer = self._exchange(wire, request, data, deadline)
            clean = isinstance(answer, Reader) and answer.reusable
        finally:  # a late answer must never be taken for the next call's
            if not clean:
                self._wire = None
                wire.hang_up()
            self.used_at = self._clock()
        if isinstance(answer, Failure):
            return answer
        elapsed = timedelta(seconds=monotonic() - started)
        return Answer(answer.status, answer.headers, answer.body, request, elapsed)

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

    def _exchange(
        self, wire: Wire, request: httpx.Request, data: bytes, deadline: float
    ) -> Reader | Failure:
        reader = Reader(without_body=request.method == "HEAD")
        not_after = request.extensions.get("not_after", inf)
        try:
            if monotonic() > not_after:  # nothing may come between this and the first byte
                return late()
            self._write(wire, data, deadline)
            _read(wire, reader, deadline)
        except TimeoutError:
            return self._failure(data, "timeout", "the deadline passed before the answer was whole")
        except BadAnswer as exc:
            return self._failure(data, exc.code, str(exc))
        except OSError as exc:
            return self._failure(data, "reset", str(exc))
        return reader

    def _failure(self, data: bytes, code: str, detail: str) -> Failure:
        if self._sent == len(data):
            return Failure(Phase.WRITTEN, code, detail)
        return Failure(
            Phase.NOT_WRITTEN, code, f"{detail} ({self._sent} of {len(data)} bytes sent)"
        )

    def _write(self, wire: Wire, data: bytes, deadline: float) -> None:
        self._sent = wire.send(data, deadline - monotonic())
        while self._sent < len(data):
            self._sent += wire.send(data[self._sent :], deadline - monotonic())


def _read(wire: Wire, reader: Reader, deadline: float) -> None:
    while not reader.done:
        left_s = deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        piece = wire.receive(left_s)
        if piece:
            reader.feed(piece)
        else:
            reader.end()


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
