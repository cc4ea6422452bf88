"""HTTP/1.1 as bytes: the request written out, the answer parsed by httptools."""

from __future__ import annotations

from typing import Final

import httptools
import httpx

from channels.http_client.failures import BadRequest
from channels.http_client.request import JsonPost

MAX_HEAD: Final = 256 << 10
"""Bytes of an answer before its body."""
MAX_BODY: Final = 1 << 20
"""Bytes of an answer's body; a longer one is no answer of a notification API."""

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_OURS: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"expect", b"accept-encoding", b"connection"}
)
"""Fields written here or not at all: the body goes out whole, and comes back without a content coding."""
_JSON: Final = b"Content-Type: application/json\r\n"
_INTERIM: Final = 200
_SWITCHED: Final = 101
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
"""Fields that say where a body ends (RFC 9112 §6.3)."""


class BadAnswer(Exception):
    """Bytes that are no answer: `code` for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def written(request: httpx.Request) -> bytes:
    """Returns the request as it goes over the wire, in one piece. Raises BadRequest, before anything is
    sent, for a line break or a NUL in a field."""
    parts = [b"%b %b HTTP/1.1\r\n" % (_method(request), request.url.raw_path)]
    if type(request) is JsonPost:
        body = request.body
        parts += [b"%b: %b\r\n" % field for field in request.fields]
        parts += (_JSON, b"Content-Length: %d\r\n" % len(body))
    else:
        body = request.read()
        parts += _fields(request, body)
    head = b"".join(parts)
    if not len(parts) == head.count(b"\r") == head.count(b"\n") or b"\0" in head:
        raise BadRequest("the request's method or a header field holds a line break or a NUL")
    return b"%b\r\n%b" % (head, body)


def _fields(request: httpx.Request, body: bytes) -> list[bytes]:
    """Returns the header fields as lines, without those that are written here."""
    lines, named_host = [], False
    for name, value in request.headers.raw:
        lower = name.lower()
        if lower not in _OURS:
            lines.append(b"%b: %b\r\n" % (name, value))
            named_host = named_host or lower == b"host"
    if not named_host:
        lines.append(b"Host: %b\r\n" % request.url.netloc)
    if body or request.method in _WITH_BODY:
        lines.append(b"Content-Length: %d\r\n" % len(body))
    return lines


def _method(request: httpx.Request) -> bytes:
    return request.method.encode("ascii", "replace")


class ResponseParser:
    """Takes one answer in, piece by piece; interim ones (100, 103) are skipped.

    Serves one answer. `feed` and `end` raise BadAnswer; nothing may be fed once it is done.
    """

    def __init__(self, *, without_body: bool = False) -> None:
        self.done = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.reusable = False
        """Whether the connection may carry another request; only true once done."""
        self._parser = httptools.HttpResponseParser(self)
        self._without_body = without_body
        """The answer is to HEAD: its fields describe a body that does not come."""
        self._body: list[bytes] = []
        self._room = MAX_BODY
        self._fed = 0
        self._in_body = False

    @property
    def body(self) -> bytes:
        """The body, as far as it has come."""
        return self._body[0] if len(self._body) == 1 else b"".join(self._body)

    def feed(self, data: bytes | memoryview) -> None:
        """Takes the next bytes in."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            raise BadAnswer("protocol", "the answer changes the protocol") from exc
        except httptools.HttpParserError as exc:
            if not self.done:
                raise BadAnswer("protocol", f"the answer is not HTTP: {_cause(exc)}") from exc
            self.reusable = False  # bytes behind the answer: not ours to read
        if not self._in_body:
            self._fed += len(data)
            if self._fed > MAX_HEAD:
                raise BadAnswer("too_large", f"the answer's head is over {MAX_HEAD:,} bytes")
        if self._room < 0:
            raise BadAnswer("too_large", f"the answer's body is over {MAX_BODY:,} bytes")
        if self.done:
            del self._parser  # it holds our methods: a cycle that only the collector would free

    def end(self) -> None:
        """Ends the answer with the connection; only a body without a length ends so."""
        if self._in_body and not self._is_framed():
            self.done = True
        else:
            where = "within the answer" if self._fed else "before an answer came"
            raise BadAnswer("closed", f"the connection was closed {where}")

    def _is_framed(self) -> bool:
        """Returns whether a field says where the body ends; asked only when the connection ended first."""
        return any(name.lower() in _FRAMING for name, _ in self.headers)

    def on_message_begin(self) -> None:
        if self.done:
            self.reusable = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # a trailer decides nothing
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.done:
            return
        self.status = self._parser.get_status_code()
        self._in_body = True
        if self._without_body and self.status >= _INTERIM:
            self.done = True

    def on_body(self, body: bytes) -> None:
        if self.done:  # a second answer in the same read is nobody's
            return
        self._room -= len(body)
        if self._room >= 0:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self.done:
            return
        if self.status < _INTERIM and self.status != _SWITCHED:
            self.headers, self._in_body = [], False
            return
        self.done = True
        self.reusable = self._parser.should_keep_alive()


def _cause(exc: BaseException) -> str:
    return str(exc.__context__ or exc)
