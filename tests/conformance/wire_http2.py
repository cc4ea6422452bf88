"""A provider made of a socket that speaks HTTP/2 frame by frame: counts what it processed, and misbehaves
by script. Frames and HPACK are hyperframe's and hpack's; no state machine keeps it from doing wrong."""

import socket
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.conformance.wire import PATIENCE_S, RESET

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL = 0, 1, 2, 7, 8
LAST = 2**31 - 1
MAX_CONCURRENT, WINDOW = SettingsFrame.MAX_CONCURRENT_STREAMS, SettingsFrame.INITIAL_WINDOW_SIZE

Act = Callable[["Session", int], bool]
"""Does something after the request of a stream; whether the connection is served on."""


class Http2Wire:
    """Each request takes the next act of the script; past its end every request is answered 200."""

    def __init__(
        self,
        *script: Act,
        tls: ssl.SSLContext | None = None,
        settings: Mapping[int, int] | None = None,
        greets: bool = True,
        greets_after_s: float = 0.0,
        widens: bool = True,
        deaf: bool = False,
        opening: bytes = b"",
        seen: Callable[["Session", Frame], None] | None = None,
    ) -> None:
        """`widens`: it opens its windows as it reads. `deaf`: it answers no PING. `opening`: said first.
        `seen`: gets every frame once it is taken in."""
        self.requests = 0
        """Processed: read whole, and not refused by REFUSED_STREAM or GOAWAY."""
        self.connections = 0
        self.sessions: list[Session] = []
        self.heads: list[dict[bytes, bytes]] = []
        self.bodies: list[bytes] = []
        self.resets: list[int] = []
        """Codes of the RST_STREAM frames that came."""
        self.pings = 0
        self.most = 0
        """Streams that were open at once."""
        self.began = threading.Event()
        """Set when a stream's HEADERS came."""
        self.done = threading.Event()
        """Set when a connection has ended: whatever was sent, FIN and RST too, is under way."""
        self.over = threading.Event()
        self.settings = dict(settings or {})
        self.greets, self.greets_after_s, self.widens = greets, greets_after_s, widens
        self.deaf, self.opening, self.seen = deaf, opening, seen
        self._script = deque(script)
        self._tls = tls
        self.lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        scheme, host = ("https", "localhost") if self._tls else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.port}/hook"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._listener.close()
        with self.lock:
            for connection in self._open:
                try:  # not closed: its thread may be about to read from what has its number next
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                except OSError:
                    pass

    def act(self) -> Act:
        with self.lock:
            return self._script.popleft() if self._script else ok

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self.lock:
            self.connections += 1
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with self.lock:
                self._open.add(connection)
            session = Session(self, connection)
            self.sessions.append(session)
            session.run()
        except OSError:
            pass
        finally:
            connection.close()
            self.done.set()


class Session:
    """One connection."""

    def __init__(self, wire: Http2Wire, connection: socket.socket) -> None:
        self.wire = wire
        self.connection = connection
        self._encoder, self._decoder = Encoder(), Decoder()
        self._bodies: dict[int, bytes] = {}
        self.waiting: list[int] = []
        """Streams that an act left without an answer."""
        self._windows: defaultdict[int, int] = defaultdict(lambda: 65_535)
        """What the client takes, of the connection (0) and of each stream."""
        self._reset: set[int] = set()
        """Streams that the client gave up."""
        self._incoming = self._frames()

    def run(self) -> None:
        wire = self.wire
        if wire.opening:
            self.connection.sendall(wire.opening)
        if not wire.greets:
            wire.over.wait(PATIENCE_S)
            return
        wire.over.wait(wire.greets_after_s)
        self.send(SettingsFrame(0, settings=wire.settings))
        if self._exactly(len(PREFACE)) != PREFACE:
            return
        for frame in self._incoming:
            served = self._take(frame)
            if wire.seen is not None:
                wire.seen(self, frame)
            if not served:
                return

    def send(self, *frames: Frame) -> None:
        self.connection.sendall(b"".join(frame.serialize() for frame in frames))

    def head(self, stream: int, status: str, *fields: tuple[str, str], end: bool = False) -> None:
        block = self._encoder.encode([(":status", status), *fields])
        frame = HeadersFrame(stream, data=block)
        frame.flags.add("END_HEADERS")
        if end:
            frame.flags.add("END_STREAM")
        self.send(frame)

    def data(self, stream: int, body: bytes, *, end: bool = True) -> None:
        """Within the client's windows, which it may open meanwhile; nothing once it gave the stream up."""
        while body and stream not in self._reset:
            room = min(self._windows[0], self._windows[stream], 16_384)
            if room <= 0:
                self._take(next(self._incoming))
                continue
            part, body = body[:room], body[room:]
            self._windows[0] -= len(part)
            self._windows[stream] -= len(part)
            self.send(
                DataFrame(stream, data=part, flags=["END_STREAM"] if end and not body else [])
            )

    def goaway(self, last: int, code: int = NO_ERROR, said: bytes = b"") -> None:
        self.send(GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=said))

    def reset(self, stream: int, code: int) -> None:
        self.send(RstStreamFrame(stream, error_code=code))

    def widen(self, stream: int, size: int) -> None:
        self.send(WindowUpdateFrame(stream, window_increment=size))

    def _take(self, frame: Frame) -> bool:
        """Whether the connection is served on."""
        if isinstance(frame, GoAwayFrame):
            return False
        if isinstance(frame, HeadersFrame | DataFrame):
            return self._read(frame)
        if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self.send(SettingsFrame(0, flags=["ACK"]))
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
            self.wire.pings += 1
            if not self.wire.deaf:
                self.send(PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
        elif isinstance(frame, WindowUpdateFrame):
            self._windows[frame.stream_id] += frame.window_increment
        elif isinstance(frame, RstStreamFrame):
            self._reset.add(frame.stream_id)
            self.wire.resets.append(frame.error_code)
            self._bodies.pop(frame.stream_id, None)
        return True

    def _read(self, frame: HeadersFrame | DataFrame) -> bool:
        """A part of a request."""
        wire, stream = self.wire, frame.stream_id
        if isinstance(frame, HeadersFrame):
            wire.heads.append(dict(self._decoder.decode(frame.data, raw=True)))
            self._bodies[stream] = b""
            wire.most = max(wire.most, len(self._bodies) + len(self.waiting))
            wire.began.set()
        elif stream in self._bodies:
            self._bodies[stream] += frame.data
            if wire.widens and frame.data:
                self.widen(0, len(frame.data))
                self.widen(stream, len(frame.data))
        whole = "END_STREAM" in frame.flags and stream in self._bodies
        return self._process(stream) if whole else True

    def _process(self, stream: int) -> bool:
        wire, act = self.wire, self.wire.act()
        body = self._bodies.pop(stream)
        if act not in UNPROCESSED:
            with wire.lock:
                wire.requests += 1
                wire.bodies.append(body)
        return act(self, stream)

    def _frames(self) -> Iterator[Frame]:
        while head := self._exactly(9):
            frame, size = Frame.parse_frame_header(memoryview(head))
            frame.parse_body(memoryview(self._exactly(size)))
            yield frame

    def _exactly(self, size: int) -> bytes:
        """So many bytes; empty at the end."""
        data = b""
        while len(data) < size:
            if not (more := self.connection.recv(min(size - len(data), 65_536))):
                return b""
            data += more
        return data


def answer(status: str = "200", body: bytes = b'{"id":"7"}', *fields: tuple[str, str]) -> Act:
    """An ordinary answer."""

    def act(session: Session, stream: int) -> bool:
        session.head(stream, status, *fields, end=not body)
        session.data(stream, body)
        return True

    return act


ok = answer()


def close(session: Session, stream: int) -> bool:
    """FIN without a word."""
    return False


def reset(session: Session, stream: int) -> bool:
    """RST of the connection without a word."""
    session.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return False


def widened(session: Session, stream: int) -> bool:
    """The stream's window opens."""
    session.widen(stream, 1_000)
    return True


def stall(session: Session, stream: int) -> bool:
    """No answer to this one; the connection is served on."""
    session.waiting.append(stream)
    return True


def interim(status: str) -> Act:
    def act(session: Session, stream: int) -> bool:
        session.head(stream, status)
        return True

    return act


def begin_answer(session: Session, stream: int) -> bool:
    """Its head, and no more."""
    session.head(stream, "200", ("content-length", "100"))
    return True


def half_a_body(session: Session, stream: int) -> bool:
    session.head(stream, "200", ("content-length", "100"))
    session.data(stream, b"abc", end=False)
    return True


def drip(session: Session, stream: int) -> bool:
    """A byte of content at a time, each well within any timeout for reading one."""
    session.head(stream, "200")
    for _ in range(500):
        session.data(stream, b"x", end=False)
        if session.wire.over.wait(0.02):
            return False
    return True


def trailers(session: Session, stream: int) -> bool:
    session.head(stream, "200")
    session.data(stream, b"{}", end=False)
    session.connection.sendall(_trailer(session, stream))
    return True


def _trailer(session: Session, stream: int) -> bytes:
    block = session._encoder.encode([("x-sum", "1")])
    return HeadersFrame(stream, data=block, flags=["END_HEADERS", "END_STREAM"]).serialize()


def rst(code: int) -> Act:
    """RST_STREAM after the request was processed."""

    def act(session: Session, stream: int) -> bool:
        session.reset(stream, code)
        return True

    return act


def goaway(code: int = NO_ERROR, *, last: int | None = None) -> Act:
    """GOAWAY that names this stream as the last one processed, or another."""

    def act(session: Session, stream: int) -> bool:
        session.goaway(stream if last is None else last, code, b'{"reason":"Shutdown"}')
        return True

    return act


def refuse(session: Session, stream: int) -> bool:
    """RST_STREAM with REFUSED_STREAM: nothing was done (RFC 9113 §8.7)."""
    session.reset(stream, REFUSED_STREAM)
    return True


def goaway_before(session: Session, stream: int) -> bool:
    """GOAWAY whose last stream is below this one: nothing was done (§6.8)."""
    session.goaway(stream - 1)
    return True


UNPROCESSED = (refuse, goaway_before)


def then(*acts: Act) -> Act:
    """One after the other, as long as the connection is served on."""

    def act(session: Session, stream: int) -> bool:
        return all(one(session, stream) for one in acts)

    return act


def raw(data: bytes) -> Act:
    """These bytes, whatever they are."""

    def act(session: Session, stream: int) -> bool:
        session.connection.sendall(data)
        return True

    return act


def later(first: Act, pause_s: float, second: Act) -> Act:
    """The second after a pause, from another thread."""

    def act(session: Session, stream: int) -> bool:
        served = first(session, stream)

        def finish() -> None:
            time.sleep(pause_s)
            try:
                second(session, stream)
            except OSError:
                pass

        threading.Thread(target=finish, daemon=True).start()
        return served

    return act
