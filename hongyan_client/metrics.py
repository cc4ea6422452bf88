"""Figures of a client, without a metrics library: a snapshot to export, and a hook for each end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from hongyan_client.hot_keys import HotKey


class SendEnd(NamedTuple):
    """One end of one send. The observer of a client gets it."""

    lane: str
    code: str
    """`acknowledged`, `spooled`, or the code of the failure."""
    seconds: float
    """From the call to the end."""


Observer = Callable[[SendEnd], None]
"""Gets each end, in a thread of the client. It must be quick; an exception of it is logged."""


class ClientFigures(NamedTuple):
    """A snapshot. Counts are since the start of the client."""

    ends: dict[tuple[str, str], int]
    """By lane and code (see `SendEnd`)."""
    buffered: int
    """Records without an acknowledgement."""
    overflow_waiting: int
    """Records in the spool; 0 without one."""
    overflow_queued: int
    """Records on their way to the spool."""
    trace_dropped: dict[str, int]
    """Trace events lost, by reason."""
    hot_keys: list[HotKey]


class EndCounts:
    """Counts ends by lane and code. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._open = 0  # sends that began and did not end

    @property
    def open(self) -> int:
        """Sends that have no end yet."""
        return self._open

    def begin(self) -> None:
        """Counts a send that began."""
        with self._lock:
            self._open += 1

    def withdraw(self) -> None:
        """Takes back the beginning of a send that was refused to its caller."""
        with self._lock:
            self._open -= 1

    def add(self, lane: str, code: str) -> None:
        """Counts one end."""
        with self._lock:
            self._counts[lane, code] += 1
            self._open -= 1

    def by_lane_and_code(self) -> dict[tuple[str, str], int]:
        """Returns the counts."""
        with self._lock:
            return dict(self._counts)
