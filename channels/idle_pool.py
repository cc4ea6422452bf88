"""Idle connections: a stack for each origin, and the janitor that closes unused ones."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Generic, Protocol, TypeVar


class Reusable(Protocol):
    """A connection between two calls."""

    used_at: float
    """Time by the pool's clock; written when a call ends, read by the janitor."""

    def close(self) -> None:
        """Closes it for good."""
        ...


K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Reusable)


class IdlePool(Generic[K, C]):
    """Thread-safe: a deque's own operations are atomic and need no lock.

    The connection used last is used first. After a burst the surplus stays unused at the bottom, where the
    janitor closes it after `idle_s`. No connection belongs to a thread, so a thread that ends leaves none
    behind.
    """

    def __init__(self, janitor: str, idle_s: float, clock: Callable[[], float]) -> None:
        """`janitor` is the name of its thread, which the first connection starts."""
        self.closed = Event()
        self._name = janitor
        self._idle_s = idle_s
        self._clock = clock
        self._idle: defaultdict[K, deque[C]] = defaultdict(deque)
        self._janitor: Thread | None = None
        self._starting = Lock()

    @property
    def size(self) -> int:
        """Number of connections that no call is using."""
        return sum(len(connections) for connections in list(self._idle.values()))

    def take(self, origin: K) -> C | None:
        """Returns the connection that was used last; None if there is none."""
        try:
            return self._idle[origin].pop()
        except IndexError:
            return None

    def put(self, origin: K, connection: C) -> None:
        """Keeps it for the next call; a closed pool closes it."""
        self._idle[origin].append(connection)
        if self.closed.is_set():
            self._discard(lambda _: True)
        elif self._janitor is None:
            self._start_janitor()

    def sweep(self) -> None:
        """Closes connections idle for longer than `idle_s`; the janitor calls it, and any thread may."""
        oldest = self._clock() - self._idle_s
        self._discard(lambda connection: connection.used_at < oldest)

    def close(self) -> None:
        """Closes every idle connection, and each one that is put here later. Idempotent."""
        self.closed.set()
        self._discard(lambda _: True)

    def _discard(self, cold: Callable[[C], bool]) -> None:
        """Closes connections, those unused for longest first, while `cold` holds."""
        for connections in list(self._idle.values()):
            with suppress(IndexError):  # none is left
                while cold(connection := connections.popleft()):
                    connection.close()
                connections.appendleft(connection)

    def _start_janitor(self) -> None:
        with self._starting:
            if self._janitor is None:
                self._janitor = Thread(target=self._keep_house, name=self._name, daemon=True)
                self._janitor.start()

    def _keep_house(self) -> None:
        while not self.closed.wait(self._idle_s / 2):
            self.sweep()
