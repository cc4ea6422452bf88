"""From names to addresses, within a deadline.

getaddrinfo cannot be interrupted: it runs in a helper thread, one per name under way, and callers
wait for that as long as they may. A lookup that outlives its callers ends when the system's resolver
gives up; whoever asks meanwhile joins it, so a dead resolver costs one thread per name, not per call.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, NamedTuple

KEEP_S: Final = 10.0
"""Connections are kept, so names are looked up rarely; this spares a burst of new ones the queue."""


class Address(NamedTuple):
    """What a socket needs to connect."""

    family: int
    sockaddr: Any


class _Lookup:
    """One getaddrinfo. Written by its thread before `done` is set, read by all after it."""

    def __init__(self, host: str, port: int) -> None:
        self.done = threading.Event()
        self.found: list[Address] = []
        self.error: OSError | None = None
        self.ended_at = 0.0
        self._target = (host, port)

    def run(self) -> None:
        try:
            self.found = _getaddrinfo(*self._target)
        except (OSError, UnicodeError) as exc:
            self.error = exc if isinstance(exc, OSError) else socket.gaierror(str(exc))
        finally:
            self.ended_at = monotonic()
            self.done.set()


class Names:
    """Safe from many threads. Remembers what it found for KEEP_S, and no failure."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lookups: dict[tuple[str, int], _Lookup] = {}
        self._lock = threading.Lock()

    def addresses(self, host: str, port: int, deadline: float) -> list[Address]:
        """In the order to try them. Raises TimeoutError, or OSError when the name has none."""
        try:
            return _getaddrinfo(host, port, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            pass  # a name
        lookup = self._join(host, port)
        if not lookup.done.wait(max(0.0, deadline - monotonic())):
            raise TimeoutError(f"looking up {host} took too long")
        if lookup.error is not None:
            raise lookup.error
        return lookup.found

    def forget(self, host: str, port: int) -> None:
        """None of its addresses could be reached: the next caller looks anew."""
        with self._lock:
            if (lookup := self._lookups.get((host, port))) and lookup.done.is_set():
                del self._lookups[host, port]

    def _join(self, host: str, port: int) -> _Lookup:
        with self._lock:
            lookup = self._lookups.get((host, port))
            if lookup is None or self._is_stale(lookup):
                lookup = self._lookups[host, port] = _Lookup(host, port)
                threading.Thread(target=lookup.run, name="name-lookup", daemon=True).start()
        return lookup

    def _is_stale(self, lookup: _Lookup) -> bool:
        if not lookup.done.is_set():
            return False
        return lookup.error is not None or self._clock() - lookup.ended_at > KEEP_S


def _getaddrinfo(host: str, port: int, flags: int = 0) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
