"""One thread that reads all HTTP/2 connections, keeps their deadlines and reports the ends of calls.

channels/http_client/answer_reader.py does the same for HTTP/1.1, where a connection carries one call. Here
a connection stays with its reader from the first call to the end:

    added ──▶ something came, or may be written ──▶ served ──▶ `done` of ended calls
                  ▲                                    │
                  └──── every 20 ms: deadlines ────────┘      over ──▶ released
"""

from __future__ import annotations

import os
import select
import threading
from time import monotonic
from typing import Final

import structlog

from channels.http2_client.connection import Http2Connection

log = structlog.get_logger(__name__)
_LOOK_S: Final = 0.02
"""Interval between two looks at the deadlines while there are calls."""
_QUIET_S: Final = 1.0
"""The same interval without calls."""
_READ: Final = select.EPOLLIN
_BOTH: Final = select.EPOLLIN | select.EPOLLOUT


class Http2Reader:
    """Any thread calls `add`, `wake` and `close`; the first `add` starts the thread."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._connections: dict[int, Http2Connection] = {}
        """By descriptor; `add` adds under the lock, `_settle` removes in the reader thread."""
        self._masks: dict[int, int] = {}
        """Descriptor to the events that epoll watches; only the reader thread reads and writes it."""
        self._starting = threading.Lock()  # guards the four below, and what is added
        self._thread: threading.Thread | None = None
        self._epoll: select.epoll | None = None
        self._bell = -1  # the eventfd that ends the thread's wait
        self._closed = False
        self._resting = False
        """True while the thread may wait for long, without calls. `_pause` and `_go_round` write it."""
        self._round_at = 0.0
        """Time of the thread's last pass, monotonic. `_go_round` writes it, at first `_start`."""
        self._look_at = 0.0
        """Time of the next look at deadlines, monotonic; `_go_round` alone uses it."""

    @property
    def beat(self) -> float:
        """Time of the thread's last pass, monotonic; now if it has nothing to do."""
        idle = self._resting or self._closed or self._thread is None
        return monotonic() if idle else self._round_at

    def add(self, connection: Http2Connection) -> bool:
        """Reads the connection from now on, to its end. Returns False if that cannot be done."""
        with self._starting:
            if self._closed:
                return False
            epoll = self._epoll or self._start()
            self._connections[connection.descriptor] = connection
            try:
                epoll.register(connection.descriptor, _READ)
            except OSError as exc:  # no room for more
                del self._connections[connection.descriptor]
                log.warning("connection_not_watched", cause=str(exc))
                return False
        self.wake()
        return True

    def begun(self, connection: Http2Connection) -> None:
        """Wakes the thread if need be, after a call was put in line or some calls ended."""
        if self._resting or connection.untold or connection.wants_to_write:
            self.wake()

    def wake(self) -> None:
        """Ends the thread's wait."""
        with self._starting:
            if self._epoll is not None and not self._epoll.closed:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Ends the thread once the calls under way have ended. Idempotent."""
        with self._starting:
            self._closed = True
        for connection in list(self._connections.values()):
            connection.retire()
        self.wake()

    def _start(self) -> select.epoll:
        epoll = self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        epoll.register(self._bell, select.EPOLLIN)
        self._thread = threading.Thread(
            target=self._run, args=(epoll,), name="http2-answers", daemon=True
        )
        self._round_at = monotonic()
        self._thread.start()
        return epoll

    def _run(self, epoll: select.epoll) -> None:
        """Runs until closed. An error ends all connections, and the thread goes on."""
        while self._connections or not self._closed:
            try:
                self._go_round(epoll)
            except Exception as exc:
                log.exception("http2_thread_died", cause=repr(exc))
                for connection in list(self._connections.values()):
                    connection.give_up("thread_died", repr(exc))
        with self._starting:
            epoll.close()
            os.close(self._bell)

    def _go_round(self, epoll: select.epoll) -> None:
        for descriptor, _ in epoll.poll(self._pause()):
            self._round_at = monotonic()
            self._resting = False
            if descriptor == self._bell:
                os.eventfd_read(descriptor)
            elif (connection := self._connections.get(descriptor)) is not None:
                self._serve(connection)
        now = self._round_at = monotonic()
        self._resting = False
        due = now >= self._look_at
        if due:
            self._look_at = now + _LOOK_S
        for connection in list(self._connections.values()):
            if due:
                self._look_after(connection, now)
            self._settle(epoll, connection)

    def _pause(self) -> float | None:
        """Returns the time until the next look; None: only an event ends the wait. `begun` wakes a thread
        that set `_resting`."""
        self._resting = True
        connections = list(self._connections.values())  # read after `_resting` is set
        if self._closed or any(one.calls or one.untold for one in connections):
            self._resting = False
            return _LOOK_S
        return _QUIET_S if connections else None

    def _serve(self, connection: Http2Connection) -> None:
        try:
            connection.serve()
        except Exception as exc:
            log.exception("answer_not_read", cause=repr(exc))
            connection.give_up("not_read", repr(exc))

    def _look_after(self, connection: Http2Connection, now: float) -> None:
        try:
            connection.look_after(now, self._idle_s)
        except Exception as exc:
            log.exception("answer_not_read", cause=repr(exc))
            connection.give_up("not_read", repr(exc))

    def _settle(self, epoll: select.epoll, connection: Http2Connection) -> None:
        """Reports ended calls, releases a connection that has ended, and sets the events to watch."""
        self._tell(connection)
        descriptor = connection.descriptor
        if connection.closed:
            epoll.unregister(descriptor)
            self._masks.pop(descriptor, None)
            self._tell(connection)  # calls that ended between the two
            del self._connections[descriptor]
            connection.release()
            return
        mask = _BOTH if connection.wants_to_write else _READ
        if self._masks.get(descriptor, _READ) != mask:
            epoll.modify(descriptor, mask)
            self._masks[descriptor] = mask

    def _tell(self, connection: Http2Connection) -> None:
        for stream in connection.ended():
            assert stream.result is not None
            try:
                stream.done(stream.result)
            except Exception:  # the other calls still wait for their results
                log.exception("answer_not_taken")
