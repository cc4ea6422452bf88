"""HTTP/1.1 for the simulator: httptools parses, uvloop carries; one request at a time a connection.

simulator/servers/http2_server.py serves a connection that begins with HTTP/2's preface.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

import httptools

from simulator.servers.http_request import MAX_BODY, Fields, Handler, Request

if TYPE_CHECKING:
    from simulator.servers.http2_server import Http2Session

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_buffer: Final = memoryview(bytearray(64 << 10))
"""Shared by all connections: each parses its bytes before the next read. Without it uvloop's TLS allocates
256 KiB for each read."""
_CLOSE: Final = ("Connection", "close")
_PREFACE: Final = b"PRI * HTTP/2.0"
"""The beginning of an HTTP/2 connection (RFC 9113 §3.4)."""


class ServerConnection(asyncio.BufferedProtocol):
    """One connection of a client."""

    def __init__(
        self, handler: Handler, opened: set[ServerConnection], close_after: int = 0
    ) -> None:
        """The `close_after`-th answer closes it; 0: none."""
        self.idle_since = monotonic()
        """Monotonic; infinite while a request is under way."""
        self._left = close_after
        self._handler = handler
        self._opened = opened
        self._request = Request()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._pending = False
        self._http2: Http2Session | None = None
        """The session of a connection that speaks HTTP/2."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, the same methods
        self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._opened.discard(self)
        if self._http2 is not None:
            self._http2.lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer

    def buffer_updated(self, size: int) -> None:
        self.idle_since = inf
        if self._http2 is None and not self._request.target and _begins_http2(size):
            self._http2 = self._session()
        if self._http2 is not None:
            self._http2.take(bytes(_buffer[:size]))
            self.idle_since = inf if self._http2.busy else monotonic()
            return
        try:
            self._parser.feed_data(_buffer[:size])
        except httptools.HttpParserError:
            self.answer(400, b'{"error":"not HTTP"}')
            self.close()

    def on_url(self, url: bytes) -> None:
        self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 15 and name.lower() == b"idempotency-key":
            self._request.key = value.decode("latin-1")
        self._request.fields.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._request.body += body
        if len(self._request.body) > MAX_BODY:
            self.close()

    def on_message_complete(self) -> None:
        request, self._request = self._request, Request()
        request.method = self._parser.get_method().decode("latin-1")
        if self._pending:  # pipelined: answers could pass each other; no known client does it
            self.close()
            return
        self._pending = True
        self._handler(self, request)

    def answer(self, status: int, body: bytes, retry_after: str = "", fields: Fields = ()) -> None:
        """Writes the whole answer; does nothing once the client is gone."""
        if self._transport is not None:
            self._pending = False
            self._left -= 1
            last = self._left == 0
            if last:
                fields = (*fields, _CLOSE)
            self._transport.write(head(status, len(body), retry_after, fields) + body)
            self.idle_since = monotonic()
            if last or not self._parser.should_keep_alive():
                self.close()

    def drip(self, status: int, body: bytes, fields: Fields, pause_s: float) -> None:
        """Writes an answer a byte at a time, then closes."""
        self._drip(head(status, len(body), "", fields) + body, pause_s)

    def write(self, data: bytes) -> bool:
        """Writes a part of an answer. Returns False once the client is gone."""
        if self._transport is None:
            return False
        self._transport.write(data)
        return True

    def rest(self) -> None:
        """Notes that no request is under way."""
        self.idle_since = monotonic()

    def close(self) -> None:
        """Closes in order: with GOAWAY over HTTP/2, then FIN."""
        if self._transport is not None:
            if self._http2 is not None:
                self._http2.leave()
            self._transport.close()

    def reset(self) -> None:
        """Closes out of order: RST."""
        if self._transport is not None:
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    def _drip(self, rest: bytes, pause_s: float) -> None:
        if not rest:
            self.close()
        elif self.write(rest[:1]):
            asyncio.get_running_loop().call_later(pause_s, self._drip, rest[1:], pause_s)

    def _session(self) -> Http2Session:
        from simulator.servers.http2_server import Http2Session  # loads h2 only if needed

        return Http2Session(self, self._handler, self._left)


def _begins_http2(size: int) -> bool:
    return size >= len(_PREFACE) and bytes(_buffer[: len(_PREFACE)]) == _PREFACE


def head(status: int, length: int, retry_after: str = "", fields: Fields = ()) -> bytes:
    """Returns status line and fields of an answer; `fields` beside or in place of our own."""
    return _worded(status, length, retry_after, tuple(fields))


@lru_cache(maxsize=256)
def _worded(status: int, length: int, retry_after: str, fields: Fields) -> bytes:
    extra = f"Retry-After: {retry_after}\r\n" if retry_after else ""
    extra += "".join(f"{name}: {value}\r\n" for name, value in fields)
    if not any(name.lower() == "content-type" for name, _ in fields):
        extra += "Content-Type: application/json\r\n"
    if 300 <= status < 400:
        extra += "Location: /redirected\r\n"
    return (
        f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nServer: hongyan-simulator\r\n"
        f"{extra}Content-Length: {length}\r\n\r\n"
    ).encode("latin-1")


def factory(
    handler: Handler, opened: set[ServerConnection], close_after: int = 0
) -> Callable[[], ServerConnection]:
    """Returns the protocol factory for `create_server`."""
    return lambda: ServerConnection(handler, opened, close_after)
