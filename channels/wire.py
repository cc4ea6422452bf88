"""One kept-alive connection over a socket: one call at a time, written once, read to its end.

Two rules carry everything here:

* Only who writes knows what was written. While the kernel has not taken the whole request, nobody can
  have acted on it: NOT_WRITTEN. Everything after is WRITTEN; under TLS, where the last record may
  leave before the error does, every failed write is. Nothing is ever written a second time.
* A call gives up the interpreter's lock twice: for one send and for one recv. With a hundred threads
  each further time is a wait in the queue for it. So deadlines are the kernel's (SO_SNDTIMEO,
  SO_RCVTIMEO), and whether a kept connection still stands is asked by getsockopt, which keeps the
  lock. Figures: docs/decisions/021-socket-transport.md.

There is no proxy here; where one is configured, libcurl connects (channels/connection.py).
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Final

import httpx

from channels.answer import Answer
from channels.channel import Failure, Phase
from channels.http1 import BadAnswer, Reader, written
from channels.wire_coding import plain
from channels.wire_dial import Dialer, Unreached

_CHUNK: Final = 16 << 10
"""Bytes asked of one recv: most answers whole."""
_AT_ONCE: Final = 16 << 10
"""Bytes that an idle connection's send buffer always has room for: writing them never waits."""
_LEAST_US: Final = 1_000
"""A kernel timeout of 0 would mean none."""
_TIMEVAL: Final = struct.Struct("ll")
_SECOND_US: Final = 1_000_000
_SO_MEMINFO: Final = 55
_ESTABLISHED: Final = b"\x01"
_NO_BYTES: Final = bytes(4)


class Wire:
    """Belongs to one call at a time; the transport's pool hands it from thread to thread."""

    def __init__(
        self, dialer: Dialer, ca_file: str, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self.used_at = 0.0
        """Monotonic; written when a call ends, read by the transport's janitor."""
        self._dialer = dialer
        self._ca_file = ca_file
        self._clock = clock
        self._line: Line | None = None

    def perform(
        self, request: httpx.Request, timeout_s: float, connect_s: float
    ) -> Answer | Failure:
        """Make the call within the deadline. Raises BadRequest, and then nothing was sent."""
        data = written(request)
        began = monotonic()
        deadline, left_s, line = began + timeout_s, timeout_s, self._line
        if line is None or not line.stands():
            try:
                line = self._connect(request.url, began + min(connect_s, timeout_s))
            except Unreached as exc:
                return Failure(Phase.NOT_WRITTEN, exc.code, str(exc))
            left_s = deadline - monotonic()
        reader = Reader(without_body=request.method == "HEAD")
        try:
            line.exchange(data, reader, left_s, deadline)
            body = plain(reader.body, reader.headers)
            elapsed = timedelta(seconds=monotonic() - began)
            return Answer(reader.status, reader.headers, body, request, elapsed)
        except (OSError, BadAnswer) as exc:
            return Failure(line.phase, *_told(exc))
        finally:
            if not reader.reusable:
                self.close()
            self.used_at = self._clock()

    def close(self) -> None:
        """Close the connection, if one stands."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _connect(self, url: httpx.URL, deadline: float) -> Line:
        self.close()
        self._line = Line(self._dialer.dial(url, self._ca_file, deadline))
        return self._line


class Line:
    """A connection that came to stand, and how long the kernel lets its operations wait."""

    def __init__(self, connected: socket.socket) -> None:
        self.phase = Phase.NOT_WRITTEN
        """Of the call under way."""
        self._socket = connected
        self._is_tls = isinstance(connected, ssl.SSLSocket)
        self._armed_s = 0.0

    def stands(self) -> bool:
        """Whether the peer has neither closed nor said anything since the last answer.

        Whatever came unasked would be taken for the answer to the next call.
        """
        try:
            state = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            queued = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4)
        except OSError:  # a kernel that tells neither
            return not _readable(self._socket)
        if state != _ESTABLISHED:
            return False
        # The kernel may account for more than bytes that wait for us.
        return queued == _NO_BYTES or not _readable(self._socket)

    def exchange(self, data: bytes, reader: Reader, left_s: float, deadline: float) -> None:
        """Write the request and read its answer; raises OSError and BadAnswer."""
        self.phase = Phase.WRITTEN if self._is_tls else Phase.NOT_WRITTEN
        if left_s != self._armed_s:
            self._arm(left_s)
        sent = self._socket.send(data)
        if sent < len(data) or sent > _AT_ONCE:
            self._write_on(memoryview(data)[sent:], deadline)
        self.phase = Phase.WRITTEN
        self._read(reader, deadline)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def _write_on(self, rest: memoryview, deadline: float) -> None:
        while rest:
            self._arm(deadline - monotonic())
            rest = rest[self._socket.send(rest) :]
        self._arm(deadline - monotonic())

    def _read(self, reader: Reader, deadline: float) -> None:
        recv = self._socket.recv
        while True:
            if data := recv(_CHUNK):
                reader.feed(data)
            else:
                reader.end()
            if reader.done:
                return
            self._arm(deadline - monotonic())

    def _arm(self, left_s: float) -> None:
        """Let each operation from now on wait so long; raises TimeoutError when nothing is left."""
        if left_s <= 0:
            raise TimeoutError
        value = _TIMEVAL.pack(*divmod(max(int(left_s * _SECOND_US), _LEAST_US), _SECOND_US))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        self._armed_s = left_s


_WAITED: Final = (TimeoutError, BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""How a deadline of the kernel's arrives here."""


def _told(exc: OSError | BadAnswer) -> tuple[str, str]:
    """Code and detail of a Failure: only words for people, the phase does not depend on them."""
    if isinstance(exc, BadAnswer):
        return exc.code, str(exc)
    if isinstance(exc, _WAITED):
        return "timeout", "the deadline passed before the answer was whole"
    if isinstance(exc, ssl.SSLEOFError):
        return "closed", "the connection was cut"
    return ("tls" if isinstance(exc, ssl.SSLError) else "reset"), str(exc)


def _readable(connected: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))
