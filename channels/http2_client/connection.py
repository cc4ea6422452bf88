"""One HTTP/2 connection: many calls at once, and the bytes of each that are known to be written.

`h2` is a state machine without I/O. Its output goes into one buffer in order, and from there over the wire
(`Wire.offer`). So each frame's place in all written bytes is known:

    END_STREAM not written            NOT_WRITTEN: the peer cannot have a whole request (RFC 9113 §8.1)
    stream id above GOAWAY's last     NOT_WRITTEN: not processed (§6.8)
    reset with REFUSED_STREAM         NOT_WRITTEN: not processed (§8.7)
    any other end without an answer   WRITTEN

A call waits in line, unwritten, until the peer's SETTINGS came (a silent peer speaks no HTTP/2). It also
waits while the peer allows no more streams, while the socket takes nothing, or while a PING is
unanswered. Its time and its lease are checked right before its HEADERS frame, and again before each frame
that flow control held back.

A call reported as NOT_WRITTEN must never be written afterwards. If a deadline passes while END_STREAM lies
in the buffer, the connection ends: the socket took nothing for as long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

import structlog
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from channels.channel import Failure, Phase
from channels.http2_client.frames import Frames, GoAway
from channels.http2_client.stream import Stream
from channels.http_client.failures import late
from channels.http_client.response import LeanResponse
from channels.http_client.sockets import Wire
from channels.tls.tls_socket import TlsWire

log = structlog.get_logger(__name__)

MAX_STREAMS: Final = 1_000
"""Open streams at once, whatever the peer allows."""
PING_AFTER_S: Final = 20.0
"""Silence after which the peer gets a PING."""
PING_WAIT_S: Final = 10.0
"""Time for the peer's answer to a PING."""
_LAST_ID: Final = 2**31 - 3
_BUFFERED: Final = 64 << 10
"""Bytes that wait for the socket, beyond which no more of a body is framed."""
_PING: Final = b"hongyan\0"


class Http2Connection:
    """Any thread calls `begin`; one thread reads (`serve`, `look_after`, `ended`)."""

    def __init__(self, wire: Wire, *, clock: Callable[[], float] = monotonic) -> None:
        """Takes an open wire without traffic. Never raises: the first call reports a failed wire."""
        self.descriptor = wire.descriptor
        self._opened = wire
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._wire: Wire | None = wire
        """None: the connection has ended."""
        self._state = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        del settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]  # of servers (RFC 8441)
        self._state.local_settings = settings
        self._frames = Frames()
        self._out = b""
        """Framed bytes that the socket has not taken yet."""
        self._queued = self._written = 0
        """Bytes that ever were in `_out`; bytes that the socket took."""
        self._waiting: deque[Stream] = deque()
        self._streams: dict[int, Stream] = {}
        self._held: dict[int, Stream] = {}
        """Streams whose body is not framed to its end."""
        self._greeted = False
        """The peer's SETTINGS came."""
        self._retired = False
        """It takes no new calls."""
        self._why = Failure(Phase.NOT_WRITTEN, "closed", "")
        """The reason, for calls that were not written."""
        self._over: list[Stream] = []
        """Streams with a result that `done` has not received."""
        self._beginning: Stream | None = None
        """The stream of `begin`, which returns its result."""
        self._heard_at = self._used_at = clock()
        self._pinged_at: float | None = None
        """Time of a PING whose answer is due."""
        with self._lock:
            self._state.initiate_connection()
            self._flush()

    @property
    def usable(self) -> bool:
        """Whether it takes new calls, as far as is known."""
        return not self._retired

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        with self._lock:
            return self._wire is None

    @property
    def calls(self) -> int:
        """The number of calls under way and in line."""
        return len(self._streams) + len(self._waiting)

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait for the socket."""
        return bool(self._out)

    @property
    def untold(self) -> bool:
        """Whether `ended` has a call to return."""
        return bool(self._over)

    def begin(self, stream: Stream) -> LeanResponse | Failure | bool:
        """Puts a call in line and writes as much as possible. Returns its result; True: `ended` has it
        later; False: the connection, which did serve others, takes no calls, and nothing was written."""
        with self._lock:
            self._take_in()  # GOAWAY and the end come first: a later write would be in doubt
            if self._retired:
                return False if self._greeted else self._why
            self._beginning = stream
            try:
                self._waiting.append(stream)
                self._advance()
            finally:
                self._beginning = None
            return True if stream.result is None else stream.result

    def serve(self) -> None:
        """Reads the bytes that came, and goes on writing."""
        with self._lock:
            self._take_in()
            self._advance()

    def look_after(self, now: float, idle_s: float) -> None:
        """Ends overdue calls, asks a silent peer, and ends a connection that nobody needs."""
        with self._lock:
            for stream in [
                s for s in (*self._streams.values(), *self._waiting) if now >= s.deadline
            ]:
                self._expire(stream)
            self._advance()
            if self._wire is None:
                return
            cold = self._retired or now - self._used_at >= idle_s
            if cold and not self._streams and not self._waiting:
                self._leave()
            else:
                self._ask_silent_peer(now)

    def ended(self) -> list[Stream]:
        """Returns the calls that have ended; the caller calls their `done`, outside of any lock."""
        with self._lock:
            over, self._over = self._over, []
            return over

    def retire(self) -> None:
        """Takes no new calls, and ends after those under way."""
        with self._lock:
            self._retire("closed", "the transport is closed")

    def release(self) -> None:
        """Closes the socket of a connection that has ended. Only the reader thread calls it: no other
        connection may get the same descriptor while that thread knows it."""
        with self._lock:
            self._opened.close()

    def give_up(self, code: str, detail: str) -> None:
        """Ends a connection that cannot be served any more."""
        with self._lock:
            self._lose(code, detail)

    # ---- reading -----------------------------------------------------------------------------

    def _take_in(self) -> None:
        """Reads all that came: bytes that TLS has decrypted already make no socket readable again."""
        while self._wire is not None:
            try:
                data = self._wire.receive_now()
            except OSError as exc:
                self._lose("reset", str(exc))
                return
            if data is None:
                return
            if not data:
                self._lose("closed", "the connection was closed")
                return
            self._heard_at = self._clock()
            self._understand(bytes(data))

    def _understand(self, data: bytes) -> None:
        try:
            for piece in self._frames.split(data):
                if isinstance(piece, GoAway):
                    self._told_to_go(piece)
                else:
                    for event in self._state.receive_data(piece):
                        self._act_on(event)
        except Exception as exc:  # of a peer that speaks no HTTP/2, or bad HTTP/2
            self._flush()  # our GOAWAY says why
            self._lose("protocol", f"the peer broke HTTP/2: {exc}")
        self._collect()

    def _act_on(self, event: Event) -> None:
        if isinstance(event, RemoteSettingsChanged):
            self._greeted = True
        elif isinstance(event, PingAckReceived):
            self._pinged_at = None
        else:
            stream = self._streams.get(getattr(event, "stream_id", None) or 0)
            if isinstance(event, DataReceived):
                self._state.acknowledge_received_data(
                    event.flow_controlled_length or 0, event.stream_id or 0
                )
            if stream is not None:
                self._answer_with(stream, event)

    def _answer_with(self, stream: Stream, event: Event) -> None:
        if isinstance(event, InformationalResponseReceived):
            stream.answered = True
        elif isinstance(event, ResponseReceived):
            stream.answered = True
            for name, value in event.headers or ():
                if name == b":status":
                    stream.status = int(value)
                else:
                    stream.headers.append((bytes(name), bytes(value)))
        elif isinstance(event, DataReceived):
            if not stream.take(event.data or b""):
                self._cancel(stream)
                self._end(
                    stream, stream.failed(self._written, "too_large", "the answer is too long")
                )
        elif isinstance(event, StreamEnded):
            if stream.id in self._held or not stream.complete(self._written):
                self._cancel(stream)  # answered before it had the whole request
            self._end(stream, stream.answer())
        elif isinstance(event, StreamReset):
            self._end(stream, self._after_reset(stream, event))

    def _after_reset(self, stream: Stream, event: StreamReset) -> Failure:
        if event.remote_reset and event.error_code == ErrorCodes.REFUSED_STREAM:
            return stream.unprocessed("reset", "the provider refused the stream before any work")
        named = getattr(event.error_code, "name", str(event.error_code))
        return stream.failed(self._written, "reset", f"the stream was reset ({named})")

    def _told_to_go(self, goaway: GoAway) -> None:
        words = f" {goaway.detail}" if goaway.detail else ""
        detail = f"the provider sent GOAWAY ({goaway.code}){words}"
        log.info("http2_goaway", code=goaway.code, detail=goaway.detail, calls=len(self._streams))
        for stream in [one for one in self._streams.values() if one.id > goaway.last_stream]:
            self._end(stream, stream.unprocessed("closed", f"{detail} before this stream"))
        self._retire("closed", detail)

    # ---- writing -----------------------------------------------------------------------------

    def _advance(self) -> None:
        """Flushes the buffer, then goes on with held bodies, then starts calls in line."""
        try:
            self._flush()
            for stream in list(self._held.values()):
                self._go_on(stream)
            while self._waiting and self._may_begin():
                stream = self._waiting[0]
                now = monotonic()
                if now >= stream.deadline:
                    self._expire(stream)
                elif now > stream.not_after:
                    self._end(stream, late())
                else:
                    self._waiting.popleft()
                    self._start(stream)
        except Exception as exc:  # our own fault: each call is judged by its written bytes
            log.exception("http2_state_broken", cause=repr(exc))
            self._lose("protocol", f"the HTTP/2 state is broken: {exc!r}")

    def _may_begin(self) -> bool:
        most = min(self._state.remote_settings.max_concurrent_streams, MAX_STREAMS)
        return (
            self._greeted
            and self._pinged_at is None
            and not self._out
            and len(self._streams) < most
            and self._wire is not None
        )

    def _start(self, stream: Stream) -> None:
        """Sends HEADERS, and as much of the body as may leave."""
        stream.id = self._state.get_next_available_stream_id()
        self._streams[stream.id] = stream
        self._state.send_headers(stream.id, stream.fields, end_stream=not stream.body)
        self._collect()
        if stream.body:
            self._held[stream.id] = stream
            self._pour(stream)
        else:
            stream.ends_at = self._queued
        if stream.id >= _LAST_ID:
            self._retire("closed", "the stream ids are used up")
        self._flush()

    def _go_on(self, stream: Stream) -> None:
        """Goes on with a body that flow control or the socket held back, unless its lease is over."""
        if stream.result is not None:
            return  # the stream before it lost the connection
        if monotonic() > stream.not_after:
            self._cancel(stream)
            self._end(stream, late())
        else:
            self._pour(stream)
            self._flush()

    def _pour(self, stream: Stream) -> None:
        """Makes DATA frames, as far as the windows and the buffer have room."""
        state = self._state
        while len(self._out) < _BUFFERED:
            window = state.local_flow_control_window(stream.id)
            room = min(window, state.max_outbound_frame_size)
            if room <= 0:
                return
            part = stream.body[stream.sent : stream.sent + room]
            stream.sent += len(part)
            last = stream.sent == len(stream.body)
            state.send_data(stream.id, part, end_stream=last)
            self._collect()
            if last:
                stream.ends_at = self._queued
                del self._held[stream.id]
                return

    def _cancel(self, stream: Stream) -> None:
        """Sends RST_STREAM: an incomplete request stays so, and no answer is awaited."""
        self._held.pop(stream.id, None)
        try:
            self._state.reset_stream(stream.id, ErrorCodes.CANCEL)
        except H2Error:
            pass  # it is closed
        self._flush()

    def _collect(self) -> None:
        data = self._state.data_to_send()
        self._queued += len(data)
        self._out += data

    def _flush(self) -> None:
        self._collect()
        wire = self._wire
        if wire is None:
            return
        try:
            while self._out and (taken := wire.offer(self._out)):
                self._written += taken
                self._out = self._out[taken:]
        except OSError as exc:
            self._lose("reset", str(exc))

    # ---- the end -----------------------------------------------------------------------------

    def _expire(self, stream: Stream) -> None:
        if not stream.id:
            self._end(stream, Failure(Phase.NOT_WRITTEN, "timeout", "the deadline passed in line"))
            if not self._greeted:
                self._lose("timeout", "the provider sent no SETTINGS")
            return
        detail = "the deadline passed before the answer was whole"
        made_ready = stream.ends_at > self._written
        self._end(stream, stream.failed(self._written, "timeout", detail))
        if made_ready:
            self._lose("timeout", "the provider reads nothing")
        else:
            self._cancel(stream)

    def _ask_silent_peer(self, now: float) -> None:
        if self._pinged_at is not None:
            if now - self._pinged_at >= PING_WAIT_S:
                self._lose("timeout", "the provider did not answer a PING")
        elif self._greeted and now - self._heard_at >= PING_AFTER_S:
            self._pinged_at = now
            self._state.ping(_PING)
            self._flush()

    def _end(self, stream: Stream, result: LeanResponse | Failure) -> None:
        """Ends a call once: the end of a connection may meet a call that is about to end."""
        if stream.result is not None:
            return
        self._streams.pop(stream.id, None)
        self._held.pop(stream.id, None)
        if not stream.id:
            self._waiting.remove(stream)
        self._used_at = self._clock()
        stream.result = result
        if stream is not self._beginning:
            self._over.append(stream)

    def _retire(self, code: str, why: str) -> None:
        """Takes no new calls; those in line were not written."""
        self._retired = True
        self._why = Failure(Phase.NOT_WRITTEN, code, why)
        for stream in list(self._waiting):
            self._end(stream, self._why)

    def _leave(self) -> None:
        """Ends a connection that carries no call, and tells the peer."""
        self._retired = True
        try:
            self._state.close_connection()
        except H2Error:
            pass
        self._flush()
        if isinstance(self._wire, TlsWire):
            self._wire.say_goodbye()
        self._shut()

    def _lose(self, code: str, detail: str) -> None:
        """Ends the connection: each call is judged by its written bytes."""
        if self._wire is None:
            return
        self._retire(code, detail)
        self._shut()
        for stream in list(self._streams.values()):
            self._end(stream, stream.failed(self._written, code, detail))

    def _shut(self) -> None:
        """Runs under the lock to its end: `release` must not close the socket before it is shut down."""
        self._out = b""
        if self._wire is not None:
            self._wire.hang_up()
            self._wire = None
