"""One libcurl easy handle: one kept-alive connection, one call at a time.

Two rules carry everything here:

* libcurl tells us right before it writes a request on a connection that stands
  (CURLOPT_PREREQFUNCTION). Whatever fails before that was not written; whatever fails after it may
  have been. No error number is asked.
* libcurl would write a POST a second time by itself when a reused connection dies before the first
  byte of an answer. The second time that function is called, it refuses: one call, one request.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Final

import httpx
import pycurl

from channels.answer import Answer, parse_head
from channels.channel import Failure, Phase
from channels.failures import BadRequest

MAX_BODY: Final = 1 << 20
"""Bytes of an answer's body; a longer one is no answer of a notification API."""

_CODES: Final = {
    pycurl.E_COULDNT_RESOLVE_PROXY: "dns",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_GOT_NOTHING: "closed",
    pycurl.E_ABORTED_BY_CALLBACK: "closed",
    pycurl.E_PARTIAL_FILE: "closed",
    pycurl.E_SEND_ERROR: "reset",
    pycurl.E_RECV_ERROR: "reset",
    pycurl.E_WRITE_ERROR: "too_large",
}
_OURS: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
"""libcurl writes these from the body it is given; an adapter's own could contradict it."""
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class Handle:
    """Owned by one call at a time; the transport's pool hands it from thread to thread."""

    def __init__(
        self,
        ca_bundle: str,
        *,
        proxy: str = "",
        idle_s: float = 60.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.used_at = 0.0
        """Monotonic; written when a call ends, read by the transport's janitor."""
        self._clock = clock
        self._head: list[bytes] = []
        self._body: list[bytes] = []
        self._room = MAX_BODY
        self._written = False
        # What the handle was last told, so that it is told again only when that changes.
        self._shape = ("", False)
        self._url = ""
        self._timeouts = (0, 0)
        self._coding: str | None = None
        self._fresh = False
        self._curl = _easy(ca_bundle, proxy, idle_s)
        self._curl.setopt(pycurl.HEADERFUNCTION, self._head.append)
        self._curl.setopt(pycurl.WRITEFUNCTION, self._take)
        self._curl.setopt(pycurl.PREREQFUNCTION, self._about_to_write)

    def perform(
        self, request: httpx.Request, timeout_s: float, connect_s: float
    ) -> Answer | Failure:
        """Make the call within the deadline. Raises BadRequest, and then nothing was sent."""
        self._prepare(request, timeout_s, connect_s)
        self._leave_dead_connection()
        try:
            self._curl.perform()
        except pycurl.error as exc:
            return self._failure(*exc.args)
        else:
            return self._answer(request)
        finally:
            self._head.clear()
            self._body.clear()
            self.used_at = self._clock()

    def close(self) -> None:
        """Close the connection with it."""
        self._curl.close()

    def _leave_dead_connection(self) -> None:
        """Take a new connection when the kept one has something to say: nothing was asked, so it can
        only be its end. libcurl looks by itself, but not within a second of the last call, and what
        is written to a closed connection would be in doubt."""
        ended = _readable(self._curl.getinfo(pycurl.ACTIVESOCKET))
        if ended is not self._fresh:
            self._curl.setopt(pycurl.FRESH_CONNECT, ended)
            self._fresh = ended

    def _about_to_write(self, *_addresses: object) -> int:
        if self._written:
            return pycurl.PREREQFUNC_ABORT
        self._written = True
        return pycurl.PREREQFUNC_OK

    def _take(self, data: bytes) -> int:
        self._room -= len(data)
        if self._room < 0:
            return 0  # anything but the length ends the transfer
        self._body.append(data)
        return len(data)

    def _prepare(self, request: httpx.Request, timeout_s: float, connect_s: float) -> None:
        self._written = False
        self._room = MAX_BODY
        self._set_headers(request)
        self._set_method(request.method, request.read())
        url = str(request.url)
        if url != self._url:
            self._curl.setopt(pycurl.URL, url)
            self._url = url
        timeouts = (max(1, int(timeout_s * 1000)), max(1, int(connect_s * 1000)))
        if timeouts != self._timeouts:
            self._curl.setopt(pycurl.TIMEOUT_MS, timeouts[0])
            self._curl.setopt(pycurl.CONNECTTIMEOUT_MS, timeouts[1])
            self._timeouts = timeouts

    def _set_headers(self, request: httpx.Request) -> None:
        """The request's own fields. libcurl writes `Name;` as a field without a value."""
        raw = request.headers.raw
        lines = [
            name + b": " + value if value else name + b";"
            for name, value in raw
            if name.lower() not in _OURS
        ]
        lines.append(b"Expect:")
        joined = b"\n".join(lines)
        if joined.count(b"\n") != len(lines) - 1 or b"\r" in joined or b"\0" in joined:
            raise BadRequest("a header field of the request holds a line break or a NUL")
        self._curl.setopt(pycurl.HTTPHEADER, lines)
        coding = request.headers.get("accept-encoding")
        if coding != self._coding:
            # libcurl decodes, so that the bound on the body holds for what it unfolds to.
            self._curl.setopt(pycurl.ACCEPT_ENCODING, coding)
            self._coding = coding

    def _set_method(self, method: str, body: bytes) -> None:
        carries = bool(body) or method in _WITH_BODY
        if (method, carries) != self._shape:
            self._curl.setopt(pycurl.NOBODY, method == "HEAD")
            self._curl.setopt(pycurl.POST if carries else pycurl.HTTPGET, method != "HEAD")
            self._curl.setopt(pycurl.CUSTOMREQUEST, None if method == "HEAD" else method)
            self._shape = (method, carries)
        if carries:
            self._curl.setopt(pycurl.POSTFIELDS, body)

    def _answer(self, request: httpx.Request) -> Answer | Failure:
        fields = parse_head(self._head)
        if fields is None:  # libcurl takes the lines that came for the whole
            return Failure(Phase.WRITTEN, "closed", "the connection died within the answer's head")
        status = self._curl.getinfo(pycurl.RESPONSE_CODE)
        elapsed = timedelta(seconds=self._curl.getinfo(pycurl.TOTAL_TIME))
        return Answer(status, fields, b"".join(self._body), request, elapsed)

    def _failure(self, number: int, message: str) -> Failure:
        if not self._written:
            return Failure(Phase.NOT_WRITTEN, _CODES.get(number, "connect"), message)
        if number == pycurl.E_ABORTED_BY_CALLBACK:
            message = "the kept-alive connection died before an answer came; not sent a second time"
        return Failure(Phase.WRITTEN, _CODES.get(number, "protocol"), message)


def _readable(descriptor: int) -> bool:
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _easy(ca_bundle: str, proxy: str, idle_s: float) -> pycurl.Curl:
    """A handle that takes nothing from its surroundings (no proxy, no netrc) and follows nothing."""
    curl = pycurl.Curl()
    for option, value in (
        (pycurl.NOSIGNAL, 1),  # signals and threads do not go together
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),  # HTTP/2 has re-sends of its own
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.PATH_AS_IS, 1),  # what was signed is what is sent
        (pycurl.PROXY, proxy),
        (pycurl.NOPROXY, ""),
        (pycurl.SSL_VERIFYPEER, 1),
        (pycurl.SSL_VERIFYHOST, 2),
        (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),  # or later
        (pycurl.CAINFO, ca_bundle),
        (pycurl.MAXCONNECTS, 1),
        (pycurl.MAXAGE_CONN, max(1, int(idle_s))),
        (pycurl.TCP_KEEPALIVE, 1),
    ):
        curl.setopt(option, value)
    return curl
