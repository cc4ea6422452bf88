"""Look-ups of mail servers' names, each in a thread of its own.

The system's resolver has no deadline, and a call must keep its own. So the call waits for another thread,
and gives up in time. The look-up goes on until the resolver ends it; meanwhile all calls for that name wait
for it. A name whose servers do not answer holds one thread, and delays no other name.
"""

from __future__ import annotations

import socket
from concurrent.futures import CancelledError, Future
from ipaddress import ip_address
from threading import Lock, Thread
from typing import cast

Address = tuple[socket.AddressFamily, tuple[str, int]]
"""A family with what `socket.connect` takes."""
_Place = tuple[str, int]
"""Host and port."""
_CLOSED = "the transport is closed"


class NameLookups:
    """Thread-safe. At most one look-up runs for a host and port."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[_Place, Future[list[Address]]] = {}
        """Calls add to it, and threads that look up take away, under `_lock`."""
        self._closed = False  # written by `close` alone, under `_lock`

    def addresses(self, host: str, port: int, timeout_s: float) -> list[Address]:
        """Returns the host's addresses. Raises OSError: the host has none, or they did not come in time, or
        `close` was called. Raises UnicodeError for a text that can be no name."""
        if _is_address(host):
            return _look_up(host, port, socket.AI_NUMERICHOST)
        try:
            return self._lookup(host, port).result(max(timeout_s, 0.0))
        except CancelledError as exc:
            raise OSError(_CLOSED) from exc
        except TimeoutError as exc:
            raise TimeoutError("the name was not resolved in time") from exc

    def close(self) -> None:
        """Ends the waits of all calls. Idempotent."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for lookup in running:
            lookup.cancel()

    def _lookup(self, host: str, port: int) -> Future[list[Address]]:
        """Returns the look-up that runs, else a new one. Raises OSError."""
        with self._lock:
            if self._closed:
                raise OSError(_CLOSED)
            lookup = self._running.get((host, port))
            if lookup is None:
                lookup = self._running[host, port] = Future()
                self._start((host, port), lookup)
        return lookup

    def _start(self, place: _Place, lookup: Future[list[Address]]) -> None:
        """Runs under `_lock`. Raises OSError if the process may have no more threads."""
        name = f"smtp-name-{place[0]}"
        try:
            Thread(target=self._run, args=(place, lookup), name=name, daemon=True).start()
        except RuntimeError as exc:
            del self._running[place]
            raise OSError(str(exc)) from exc

    def _run(self, place: _Place, lookup: Future[list[Address]]) -> None:
        """Looks up on a thread of its own. `lookup` stays pending meanwhile: `close` may cancel it."""
        found: list[Address] | Exception
        try:
            found = _look_up(*place)
        except Exception as exc:  # also UnicodeError: every caller gets it
            found = exc
        with self._lock:
            del self._running[place]
        if not lookup.set_running_or_notify_cancel():
            return
        if isinstance(found, Exception):
            lookup.set_exception(found)
        else:
            lookup.set_result(found)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(host: str, port: int, flags: int = 0) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, cast("tuple[str, int]", address)) for family, _, _, _, address in found]
