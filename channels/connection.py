"""One connection: opened by libcurl, spoken over by us, one call at a time.

libcurl resolves, connects, goes through a proxy and does TLS (CURLOPT_CONNECT_ONLY). The request is
written here, because only who writes knows what was written:

    opening failed, or not every byte was taken     NOT_WRITTEN: nobody can act on a part of a request
    every byte was taken, and no whole answer came  WRITTEN

No error's name or number is asked, and nothing is ever written a second time. What libcurl's own HTTP
would do differently, and cost: docs/decisions/020-transport.md.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Final

import httpx
import pycurl

from channels.answer import Answer
from channels.channel import Failure, Phase
from channels.http1 import BadAnswer, Reader, written

_CHUNK: Final = 16 << 10
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


class _TimedOut(Exception):
    """The call's deadline has passed."""


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
        self._descriptor = -1
        """Of the open connection; negative: none that may be used."""
        self._sent = 0
        """Bytes of the present request that were taken."""
        self._readable = select.poll()
        self._curl = _easy(ca_bundle, proxy)

    def perform(
        self, request: httpx.Request, timeout_s: float, connect_s: float
    ) -> Answer | Failure:
        """Make the call within the deadline. Raises BadRequest, and then nothing was sent."""
        data = written(request)
        started = monotonic()
        deadline = started + timeout_s
        if not self._alive():
            failure = self._open(str(request.url), timeout_s, connect_s)
            if failure is not None:
                return failure
        clean = False
        try:
            answer = self._exchange(request, data, deadline)
            clean = isinstance(answer, Reader) and answer.reusable
        finally:  # a late answer must never be taken for the next call's
            if not clean:
                self._hang_up()
            self.used_at = self._clock()
        if isinstance(answer, Failure):
            return answer
        elapsed = timedelta(seconds=monotonic() - started)
        return Answer(answer.status, answer.headers, answer.body, request, elapsed)

    def close(self) -> None:
        """Close it for good."""
        self._descriptor = -1
        self._curl.close()

    def _alive(self) -> bool:
        """Whether the kept connection may carry a call, as far as can be known. One that has something
        to say before it was asked has either ended, and what is written to it would be in doubt for
        nothing; or it would answer this call with what belongs to another."""
        return self._descriptor >= 0 and not self._readable.poll(0)

    def _open(self, url: str, timeout_s: float, connect_s: float) -> Failure | None:
        curl = self._curl
        self._descriptor = -1
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * _MS)))
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * _MS)))
        try:
            curl.perform()
        except pycurl.error as exc:
            number, message = _told(exc)
            return Failure(Phase.NOT_WRITTEN, _CODES.get(number, "connect"), message)
        self._descriptor = curl.getinfo(pycurl.ACTIVESOCKET)
        self._readable = _poll_for(self._descriptor, select.POLLIN)
        return None

    def _hang_up(self) -> None:
        """End the connection now; libcurl lets go of its socket when the next one is opened."""
        connection, self._descriptor = _borrow(self._descriptor), -1
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the provider was faster
        finally:
            connection.detach()

    def _exchange(self, request: httpx.Request, data: bytes, deadline: float) -> Reader | Failure:
        reader = Reader(without_body=request.method == "HEAD")
        try:
            self._write(data, deadline)
            self._read(reader, deadline)
        except _TimedOut:
            return self._failure(data, "timeout", "the deadline passed before the answer was whole")
        except BadAnswer as exc:
            return self._failure(data, exc.code, str(exc))
        except pycurl.error as exc:
            return self._failure(data, "reset", _told(exc)[1])
        return reader

    def _failure(self, data: bytes, code: str, detail: str) -> Failure:
        if self._sent == len(data):
            return Failure(Phase.WRITTEN, code, detail)
        return Failure(
            Phase.NOT_WRITTEN, code, f"{detail} ({self._sent} of {len(data)} bytes sent)"
        )

    def _write(self, data: bytes, deadline: float) -> None:
        self._sent = 0
        rest = memoryview(data)
        while rest:
            try:
                taken = self._curl.send(rest)
            except BlockingIOError:
                self._wait(_poll_for(self._descriptor, select.POLLOUT), deadline)
            else:
                self._sent += taken
                rest = rest[taken:]

    def _read(self, reader: Reader, deadline: float) -> None:
        """libcurl may hold decrypted bytes that no poll tells of: it is asked until it has none."""
        self._wait(self._readable, deadline)
        while not reader.done:
            try:
                piece = self._curl.recv(_CHUNK)
            except BlockingIOError:
                self._wait(self._readable, deadline)
                continue
            if piece:
                reader.feed(piece)
            else:
                reader.end()
            if monotonic() > deadline and not reader.done:
                raise _TimedOut

    def _wait(self, poll: select.poll, deadline: float) -> None:
        left_s = deadline - monotonic()
        if left_s <= 0 or not poll.poll(left_s * _MS):
            raise _TimedOut


def _poll_for(descriptor: int, event: int) -> select.poll:
    poll = select.poll()
    poll.register(descriptor, event)
    return poll


def _borrow(descriptor: int) -> socket.socket:
    """libcurl's socket as Python's; to be detached, for it stays libcurl's to close."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)


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
