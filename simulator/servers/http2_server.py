"""HTTP/2 for the simulator: `h2` keeps the state, each stream is one request.

As at Apple, a connection allows one stream until an answer was good, then many ("Sending notification
requests to APNs", read 2026-11-22). A fault that ends a connection of HTTP/1.1 ends its stream alone here.

    reset    RST_STREAM with INTERNAL_ERROR     close, drop    RST_STREAM with CANCEL

A connection to be closed sends GOAWAY, serves its open streams, and takes none above the one named.
"""

from __future__ import annotations

import asyncio
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from simulator.servers.http_request import MAX_BODY, Carrier, Fields, Handler, Request

_FIRST: Final = 1
_THEN: Final = 1_000
"""Streams that a connection allows, before and after the first good answer."""


class Http2Session:
    """One connection. Everything belongs to the loop's thread."""

    def __init__(self, connection: Carrier, handler: Handler, close_after: int) -> None:
        """GOAWAY follows the `close_after`-th answer; 0: none."""
        self._connection = connection
        self._handler = handler
        self._left = close_after
        self._state = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._state.local_settings = Settings(
            client=False, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: _FIRST}
        )
        self._widened = False
        self._requests: dict[int, Request] = {}
        """Requests that are not read to their end."""
        self._open: set[int] = set()
        """Streams whose request was taken and is not answered."""
        self._highest = 0
        """The last stream whose request was taken."""
        self._leaving = False
        self._state.initiate_connection()
        self._flush()

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._open or self._requests)

    def take(self, data: bytes) -> None:
        """Reads the bytes that came."""
        try:
            for event in self._state.receive_data(data):
                self._act_on(event)
        except H2Error:
            self._leaving = True  # h2 sends GOAWAY itself, with the error
            self._flush()
            self._connection.close()
            return
        self._flush()

    def lost(self) -> None:
        """Forgets all streams of a client that has gone."""
        self._open.clear()
        self._requests.clear()

    def leave(self) -> None:
        """Sends GOAWAY, once. `h2` would end the connection with it, so the frame is written beside it."""
        if not self._leaving:
            self._leaving = True
            frame = GoAwayFrame(
                0, last_stream_id=self._highest, additional_data=b'{"reason":"Shutdown"}'
            )
            self._connection.write(frame.serialize())

    def answer(self, stream: int, status: int, body: bytes, fields: Fields) -> None:
        """Sends the whole answer of a stream that waits for one."""
        if stream not in self._open:
            return
        try:
            self._state.send_headers(stream, _worded(status, body, fields), end_stream=not body)
            if body:
                self._state.send_data(stream, body, end_stream=True)
        except H2Error:
            self.end(stream, ErrorCodes.INTERNAL_ERROR)  # its window is too small for an answer
            return
        if status < 400 and not self._widened:
            self._widened = True
            self._state.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: _THEN})
        self._done(stream)

    def drip(self, stream: int, status: int, body: bytes, fields: Fields, pause_s: float) -> None:
        """Sends the head, then a byte at a time, and never the end."""
        if stream in self._open:
            self._state.send_headers(stream, _worded(status, body, fields)[:-1])
            self._flush()
            self._drip(stream, body, pause_s)

    def end(self, stream: int, code: ErrorCodes) -> None:
        """Sends RST_STREAM."""
        if stream in self._open:
            try:
                self._state.reset_stream(stream, code)
            except H2Error:
                pass  # the client ended it first
            self._done(stream)

    def _drip(self, stream: int, rest: bytes, pause_s: float) -> None:
        if stream in self._open:
            part = rest[:1] or b" "
            try:
                self._state.send_data(stream, part)
            except H2Error:
                self._open.discard(stream)
                return
            self._flush()
            later = asyncio.get_running_loop().call_later
            later(pause_s, self._drip, stream, rest[1:], pause_s)

    def _act_on(self, event: Event) -> None:
        stream = getattr(event, "stream_id", None) or 0
        if isinstance(event, RequestReceived):
            if not self._leaving:
                self._requests[stream] = _begun(event)
        elif isinstance(event, DataReceived):
            self._state.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            if request := self._requests.get(stream):
                request.body += event.data or b""
                if len(request.body) > MAX_BODY:
                    self._connection.close()
        elif isinstance(event, StreamEnded):
            self._serve(stream)
        elif isinstance(event, StreamReset):
            self._requests.pop(stream, None)
            self._open.discard(stream)
        elif isinstance(event, ConnectionTerminated):
            self._connection.close()

    def _serve(self, stream: int) -> None:
        request = self._requests.pop(stream, None)
        if request is not None:
            self._open.add(stream)
            self._highest = stream
            request.connection = self
            self._handler(ServedStream(self, stream), request)

    def _done(self, stream: int) -> None:
        self._open.discard(stream)
        self._flush()
        self._left -= 1
        if self._left == 0:
            self.leave()
        if not self.busy:
            self._connection.rest()
            if self._leaving:
                self._connection.close()

    def _flush(self) -> None:
        self._connection.write(self._state.data_to_send())


class ServedStream:
    """One request's client; see `simulator.servers.http_request.RequestClient`."""

    __slots__ = ("_id", "_session")

    def __init__(self, session: Http2Session, stream: int) -> None:
        self._session = session
        self._id = stream

    def answer(self, status: int, body: bytes, retry_after: str = "", fields: Fields = ()) -> None:
        if retry_after:
            fields = (*fields, ("retry-after", retry_after))
        self._session.answer(self._id, status, body, fields)

    def drip(self, status: int, body: bytes, fields: Fields, pause_s: float) -> None:
        self._session.drip(self._id, status, body, fields, pause_s)

    def close(self) -> None:
        self._session.end(self._id, ErrorCodes.CANCEL)

    def reset(self) -> None:
        self._session.end(self._id, ErrorCodes.INTERNAL_ERROR)


def _begun(event: RequestReceived) -> Request:
    """Returns a request whose fields came; `host` is its authority."""
    request = Request()
    request.version = "2"
    for name, value in event.headers or ():
        name, value = bytes(name), bytes(value)
        if name == b":method":
            request.method = value.decode("latin-1")
        elif name == b":path":
            request.target = value
        elif name == b":authority":
            request.fields.append((b"host", value))
        elif name == b"idempotency-key":
            request.key = value.decode("latin-1")
        if not name.startswith(b":"):
            request.fields.append((name, value))
    return request


def _worded(status: int, body: bytes, fields: Fields) -> list[tuple[str, str]]:
    """Returns the answer's fields, its length last."""
    worded = [(":status", str(status)), ("server", "hongyan-simulator")]
    worded += [(name.lower(), value) for name, value in fields]
    if body and not any(name == "content-type" for name, _ in worded):
        worded.append(("content-type", "application/json"))
    if 300 <= status < 400:
        worded.append(("location", "/redirected"))
    return [*worded, ("content-length", str(len(body)))]
