"""Figures of a client, without a metrics library: a snapshot to export, and a hook for each end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Final, NamedTuple

from hongyan_client.hot_keys import HotKey
from hongyan_client.sends.lane_route import LaneRoute

ACKNOWLEDGED: Final = "acknowledged"
SPOOLED: Final = "spooled"


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
    """Counts ends by lane and code. Any thread.

    Acknowledgements are counted in the lanes' routes, and the beginnings of a batch by its length: a lock
    for each of them costs too much.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all
        self._counts: Counter[tuple[str, str]] = Counter()  # of all but acknowledgements
        self._begun = 0
        self._ended = 0  # withdrawn ones too
        self._batches: list[Sized] = []
        self._routes: list[LaneRoute] = []

    @property
    def open(self) -> int:
        """Sends that have no end yet."""
        with self._lock:
            acknowledged = sum(route.acknowledged for route in self._routes)
            return self._begun + sum(map(len, self._batches)) - self._ended - acknowledged

    @property
    def failed(self) -> int:
        """Sends that ended in neither Kafka nor the overflow."""
        with self._lock:
            return sum(n for (_lane, code), n in self._counts.items() if code != SPOOLED)

    def know(self, route: LaneRoute) -> None:
        """Counts the acknowledgements of this lane, too."""
        with self._lock:
            if route not in self._routes:
                self._routes.append(route)

    @contextmanager
    def of(self, batch: Sized) -> Iterator[None]:
        """Counts the members of a batch as sends that began, while it grows inside and after it."""
        with self._lock:
            self._batches.append(batch)
        try:
            yield
        finally:
            with self._lock:
                self._batches = [one for one in self._batches if one is not batch]
                self._begun += len(batch)

    def begin(self) -> None:
        """Counts a send that began."""
        with self._lock:
            self._begun += 1

    def withdraw(self) -> None:
        """Takes back the beginning of a send that was refused to its caller."""
        with self._lock:
            self._ended += 1

    def add(self, lane: str, code: str) -> None:
        """Counts one end that is no acknowledgement."""
        with self._lock:
            self._counts[lane, code] += 1
            self._ended += 1

    def by_lane_and_code(self) -> dict[tuple[str, str], int]:
        """Returns the counts."""
        with self._lock:
            found = {
                (route.name, ACKNOWLEDGED): route.acknowledged
                for route in self._routes
                if route.acknowledged
            }
            return {**self._counts, **found}
