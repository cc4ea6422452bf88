"""Counts of the events that a process's trace lost, by sink and reason."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

FULL: Final = "full"
CLOSED: Final = "closed"
CLOSING: Final = "closing"
REFUSED: Final = "refused"
UNFINISHED: Final = "unfinished"
"""Reason of events that a sink had in hand when the time was over: it may have written them."""
UNWRITTEN: Final = frozenset({FULL, CLOSED, CLOSING, REFUSED})
"""Reasons of events that no sink took. A sink uses other ones."""
_COMPLAIN_S: Final = 60.0


Report = Callable[[Mapping[str, int]], None]
"""Gets the events lost since the last report, by `sink:reason`."""


def no_report(_lost: Mapping[str, int]) -> None:
    """Reports nothing: the counts are all."""


class Drops:
    """Counts of lost events, by sink and reason; reported at most once a minute. Any thread."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, report: Report = no_report
    ) -> None:
        self._monotonic = monotonic
        self._report = report
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._said_at = float("-inf")
        self._said: Counter[tuple[str, str]] = Counter()

    def add(self, sink: str, reason: str, events: int) -> None:
        """Counts lost events of one sink, and reports them if it is time to."""
        self.count(sink, reason, events)
        self.tell()

    def count(self, sink: str, reason: str, events: int) -> None:
        """Counts lost events of one sink; does no I/O."""
        if events:
            with self._lock:
                self._counts[sink, reason] += events

    def tell(self) -> None:
        """Reports the losses since the last report, at most once a minute."""
        with self._lock:
            now, fresh = self._monotonic(), self._counts - self._said
            if not fresh or now - self._said_at < _COMPLAIN_S:
                return
            self._said_at, self._said = now, Counter(self._counts)
        self._report({f"{sink}:{reason}": count for (sink, reason), count in fresh.items()})

    def unwritten(self, sink: str) -> int:
        """Returns the events of the sink that it never took."""
        with self._lock:
            return sum(self._counts[sink, reason] for reason in UNWRITTEN)

    def counts(self) -> dict[tuple[str, str], int]:
        """Returns the events lost since the start, by (sink, reason)."""
        with self._lock:
            return dict(self._counts)
