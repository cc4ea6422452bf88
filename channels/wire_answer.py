"""Reads one answer at a time off a connection, as far as a sender needs it.

llhttp frames the answer; its fields are parsed only when someone asks for one, because of most
answers nobody reads more than status and body.
"""

from __future__ import annotations

import re
import zlib
from datetime import timedelta
from typing import Any, Final

import httpx
from httptools import HttpParserError, HttpResponseParser

from channels.answer import Answer, parse_head
from channels.curl import MAX_BODY

MAX_HEAD: Final = 1 << 16
"""Bytes of an answer's head, interim answers included."""
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_UNZIPPED: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_FILLED: Final = frozenset(
    {
        "headers",
        "extensions",
        "history",
        "stream",
        "next_request",
        "is_closed",
        "is_stream_consumed",
        "default_encoding",
        "_num_bytes_downloaded",
        "_elapsed",
    }
)
"""What httpx.Response.__init__ sets beside status and content."""


class BadAnswer(Exception):
    """What came cannot be taken as the answer; `code` as in Failure."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class LazyAnswer(Answer):
    """An Answer that becomes a whole Response when more than status and content is asked for."""

    def __init__(
        self,
        status_code: int,
        content: bytes,
        fields: tuple[bytes, int],
        request: httpx.Request,
        took_s: float,
    ) -> None:
        self.status_code = status_code
        self._content = content
        self._fields = fields
        """The raw heads as they came, and how many interim ones stand before the last."""
        self._request = request
        self._took_s = took_s

    def __getattr__(self, name: str) -> Any:
        if name not in _FILLED:
            raise AttributeError(name)
        took = timedelta(seconds=self._took_s)
        assert self._request is not None
        Answer.__init__(
            self, self.status_code, _fields(*self._fields), self._content, self._request, took
        )
        return getattr(self, name)


class Reader:
    """One connection's parser. `begin`, then `feed` until `done`, or `end` when the peer ended."""

    def __init__(self) -> None:
        # Lenient where senders in the wild are sloppy: bare line feeds, odd bytes in a value. That
        # is dangerous where a second message may follow; here whatever follows ends the connection.
        parser = HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
            lenient_data_after_close=True,
        )
        self._parser = parser
        self.begin(head_only=False)

    def begin(self, *, head_only: bool) -> None:
        """Forget the answer before; the next one is to a HEAD when `head_only`."""
        self.done = False
        self.keeps = False
        """The connection may carry another call."""
        self._head_only = head_only
        self._headed = False
        self._status = 0
        self._interims = 0
        self._head = b""
        self._body = b""
        self._more: list[bytes] = []
        self._room = MAX_BODY

    def feed(self, data: bytes) -> None:
        """Take what came; raises BadAnswer."""
        if not self._headed:
            self._head = self._head + data if self._head else data
        try:
            self._parser.feed_data(data)
        except HttpParserError as exc:
            self.keeps = False
            if not self.done:  # else it is about what follows the answer
                raise BadAnswer("protocol", f"this is no HTTP/1.1 answer: {exc}") from exc
        if self._room < 0 or not (self._headed or len(self._head) <= MAX_HEAD):
            raise BadAnswer("too_large", "the answer is larger than any of a notification API")

    def end(self) -> None:
        """The peer closed. That ends an answer which names no length; raises BadAnswer for others."""
        if not self._headed:
            raise BadAnswer("closed", "the connection was closed without an answer")
        names = {name.lower() for name, _ in _fields(self._head, self._interims)}
        if names & {b"content-length", b"transfer-encoding"}:
            raise BadAnswer("closed", "the connection was closed within the answer")
        self.done = True

    def answer(self, request: httpx.Request, took_s: float) -> Answer:
        """The answer that was read; raises BadAnswer for a coding nobody asked for."""
        body = self._body + b"".join(self._more) if self._more else self._body
        fields = (self._head, self._interims)
        if body and b"-encoding" in self._head.lower():
            body = _decoded(body, fields)
        return LazyAnswer(self._status, body, fields, request, took_s)

    # What the parser calls. After `done` it may be about bytes that follow the answer.

    def on_message_begin(self) -> None:
        if self.done:
            self.keeps = False

    def on_headers_complete(self) -> None:
        if self.done:
            return
        self._status = self._parser.get_status_code()
        self._headed = self._status >= 200
        # The parser would wait for the body that an answer to HEAD only speaks of.
        self.done = self._headed and self._head_only

    def on_body(self, data: bytes) -> None:
        if self.done:
            return
        self._room -= len(data)
        if not self._body:
            self._body = data
        elif self._room >= 0:
            self._more.append(data)

    def on_message_complete(self) -> None:
        if self.done:
            return
        if self._headed:
            self.done = True
            self.keeps = self._parser.should_keep_alive()
        else:
            self._interims += 1


def _fields(heads: bytes, interims: int) -> list[tuple[bytes, bytes]]:
    head = _HEAD_END.split(heads, interims + 1)[interims]
    return parse_head([*head.split(b"\n"), b""]) or []


def _decoded(body: bytes, fields: tuple[bytes, int]) -> bytes:
    codings = _codings(*fields)
    if not codings:
        return body
    if len(codings) > 1 or codings[0] not in _UNZIPPED:
        raise BadAnswer("protocol", f"the answer is coded as {b', '.join(codings)!r}")
    try:
        unzip = zlib.decompressobj(_GZIP_OR_ZLIB)
        plain = unzip.decompress(body, MAX_BODY + 1)
    except zlib.error as exc:
        raise BadAnswer("protocol", f"the answer's body cannot be unzipped: {exc}") from exc
    if len(plain) > MAX_BODY:
        raise BadAnswer("too_large", "the answer's body unzips to more than any")
    return plain
