"""Bytes over an open connection: straight to the socket; channels/tls/tls_socket.py adds TLS.

Python releases the GIL around every system call and must get it back afterwards. With a hundred threads
that costs more than the calls: a message that was polled, sent, polled for and received changed threads
nine times. Writing into a socket's buffer and peeking at it return at once, so these calls keep the GIL
(`ctypes.PyDLL`). Only the wait for the answer releases it: one blocking `recv` with the deadline as the
socket's timeout (docs/decisions/044-plain-sockets.md), or one `epoll` for the answers to many calls
(channels/http_client/answer_reader.py). `watch` returns at once, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import socket
import struct
from collections.abc import Collection
from typing import Final, Protocol

_BYTES = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_holding = ctypes.PyDLL(None, use_errno=True)
_letting_go = ctypes.CDLL(None, use_errno=True)
_send, _look, _receive = _holding.send, _holding.recv, _letting_go.recv
for _call in (_send, _look, _receive):
    _call.argtypes, _call.restype = _BYTES, ctypes.c_ssize_t


class _Watched(ctypes.Structure):
    """The kernel's `epoll_event`, which is packed on x86-64 alone."""

    _pack_ = 1 if platform.machine() == "x86_64" else ctypes.alignment(ctypes.c_uint64)
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


_control = _holding.epoll_ctl
_control.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Watched))
_ADD, _CHANGE = 1, 3
_ONCE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT

_WRITE: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_PEEK: Final = socket.MSG_DONTWAIT | socket.MSG_PEEK
_NOT_NOW: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK})
_PASSING: Final = _NOT_NOW | {errno.EINTR}
_CHUNK: Final = 16 << 10
_MS: Final = 1_000
_US: Final = 1_000_000
_MIN_S: Final = 0.001
"""The kernel takes 0 for "wait for ever"."""
_SLACK_S: Final = 0.01
"""Precision of a deadline; with a finer one every call would have to set the socket's timeout."""


class Wire(Protocol):
    """An open connection. One thread at a time."""

    @property
    def descriptor(self) -> int:
        """The socket's descriptor."""
        ...

    def silent(self) -> bool:
        """Returns whether it is open with nothing to read."""
        ...

    def send(self, data: bytes, left_s: float) -> int:
        """Returns the number of bytes taken within the time. Raises TimeoutError, OSError."""
        ...

    def offer(self, data: bytes) -> int:
        """As `send`, without waiting; after 0 the next offer must begin with the same bytes. The peer reads
        a byte that was not taken only if it is offered again. Raises OSError."""
        ...

    def receive(self, left_s: float) -> bytes | memoryview:
        """Returns bytes, empty at the end; good until the next call. Raises TimeoutError, OSError."""
        ...

    def receive_now(self) -> bytes | memoryview | None:
        """As `receive`, without waiting: None if nothing has come. Raises OSError."""
        ...

    def hang_up(self) -> None:
        """Ends it now, in both directions. Its descriptor stays taken until `close`."""
        ...

    def close(self) -> None:
        """Gives the descriptor back: from now on another file may have it. Idempotent."""
        ...


class PlainWire:
    """The socket itself, made blocking."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self.descriptor = connection.fileno()
        self._socket = connection
        self._buffer = ctypes.create_string_buffer(_CHUNK)
        self._bytes = memoryview(self._buffer).cast("B")
        self._timeout_s = 0.0

    def silent(self) -> bool:
        taken: int = _look(self.descriptor, self._buffer, 1, _PEEK)
        return taken < 0 and ctypes.get_errno() in _NOT_NOW

    def send(self, data: bytes, left_s: float) -> int:
        while True:
            taken: int = _send(self.descriptor, data, len(data), _WRITE)
            if taken >= 0:
                return taken
            _raise_unless(ctypes.get_errno(), _PASSING)
            _wait(_poll_for(self.descriptor, select.POLLOUT), left_s)

    def offer(self, data: bytes) -> int:
        taken: int = _send(self.descriptor, data, len(data), _WRITE)
        if taken >= 0:
            return taken
        _raise_unless(ctypes.get_errno(), _PASSING)
        return 0

    def receive(self, left_s: float) -> memoryview:
        if abs(self._timeout_s - left_s) > _SLACK_S:
            self._set_timeout(left_s)
        while True:
            taken: int = _receive(self.descriptor, self._buffer, _CHUNK, 0)
            if taken >= 0:
                return self._bytes[:taken]
            number = ctypes.get_errno()
            if number in _NOT_NOW:
                raise TimeoutError
            _raise_unless(number, {errno.EINTR})

    def receive_now(self) -> memoryview | None:
        taken: int = _look(self.descriptor, self._buffer, _CHUNK, socket.MSG_DONTWAIT)
        if taken >= 0:
            return self._bytes[:taken]
        _raise_unless(ctypes.get_errno(), _PASSING)
        return None

    def hang_up(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the provider closed it first

    def close(self) -> None:
        self._socket.close()

    def _set_timeout(self, seconds: float) -> None:
        whole, fraction = divmod(max(seconds, _MIN_S), 1)
        value = struct.pack("@ll", int(whole), int(fraction * _US))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._timeout_s = seconds


def watch(epoll: select.epoll, descriptor: int) -> None:
    """Makes `epoll` report once that the socket is readable, now or later. Raises OSError."""
    event = _Watched(_ONCE, descriptor)
    if not _control(epoll.fileno(), _CHANGE, descriptor, event):
        return
    _raise_unless(ctypes.get_errno(), {errno.ENOENT})  # not watched before, or another socket
    if _control(epoll.fileno(), _ADD, descriptor, event):
        _raise_unless(ctypes.get_errno(), ())


def _raise_unless(number: int, expected: Collection[int]) -> None:
    if number not in expected:
        raise OSError(number, os.strerror(number))


def _wait(poll: select.poll, left_s: float) -> None:
    if left_s <= 0 or not poll.poll(left_s * _MS):
        raise TimeoutError


def _poll_for(descriptor: int, event: int) -> select.poll:
    poll = select.poll()
    poll.register(descriptor, event)
    return poll
