"""The lowest contiguous completed offset of one assigned partition.

A completion costs a few dictionary look-ups whatever the span; a commit costs the number of runs.
All of it belongs to the source's thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from dispatcher.kafka.offset_metadata import OffsetRange


class OffsetStatus(Enum):
    """What the tracker says of an offset that a poll brought."""

    NEW = "new"
    """Registered; it holds the watermark until completed."""
    DONE = "done"
    """A predecessor completed it: nothing to do."""
    OPEN = "open"
    """Registered already and still being worked on: a second look at the same record."""
    REWOUND = "rewound"
    """Below the watermark: the log began anew, or somebody seeked back. Start a new tracker."""


class Offsets:
    """Which offsets of one partition are done. `start` is the committed offset, None if there was none.

    Offsets that the broker never shows (compacted away, transaction markers, aborted records, cut off
    by retention) count as done as soon as a later one arrives; dispatcher/kafka/removed_records.py tells
    of those that were lost.
    """

    def __init__(
        self,
        start: int | None = None,
        done: Sequence[OffsetRange] = (),
        on_gap: Callable[[int, int], None] | None = None,
    ) -> None:
        """`on_gap` hears of offsets from, and up to, which no record came."""
        self._on_gap = on_gap
        self._watermark = start
        self._next = start
        self._inherited = sorted(done)
        self._inherited_starts = [run.start for run in self._inherited]
        self._moved = False
        self._open: dict[int, float] = {}
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}

    @property
    def watermark(self) -> int | None:
        """Everything below is done: the offset to commit. None before the first record."""
        return self._watermark

    @property
    def expected(self) -> int | None:
        """The offset that comes next, if none is missing. None before the first record."""
        return self._next

    @property
    def untouched(self) -> bool:
        """Nothing has been completed since the assignment: there is nothing to say to the broker."""
        return not self._moved

    @property
    def outstanding(self) -> int:
        """Records registered and not completed."""
        return len(self._open)

    @property
    def oldest(self) -> float | None:
        """When the lowest outstanding record was registered; None when nothing is."""
        return next(iter(self._open.values()), None)

    def register(self, offset: int, now: float) -> OffsetStatus:
        """Take note of a polled offset at monotonic time `now`."""
        if self._next is None or self._watermark is None:
            self._watermark = self._next = offset
        if offset < self._next:
            return self._again(offset)
        if offset > self._next:
            if self._on_gap is not None:
                self._on_gap(self._next, offset)
            self._finish(self._next, offset)
        self._next = offset + 1
        if self._inherited and self._inherits(offset):
            self._finish(offset, offset + 1)
            return OffsetStatus.DONE
        self._open[offset] = now
        return OffsetStatus.NEW

    def complete(self, offset: int) -> None:
        """The record is settled, or the ledger owns it. A second call for one offset does nothing."""
        if self._open.pop(offset, None) is not None:
            self._finish(offset, offset + 1)

    def complete_all(self, offsets: Iterable[int]) -> None:
        """`complete` for each."""
        for offset in offsets:
            self.complete(offset)

    def runs(self) -> list[OffsetRange]:
        """What is done above the watermark, sorted, apart."""
        return sorted(OffsetRange(start, end) for start, end in self._end_of.items())

    def _again(self, offset: int) -> OffsetStatus:
        if offset in self._open:
            return OffsetStatus.OPEN
        if self._watermark is not None and offset < self._watermark:
            return OffsetStatus.REWOUND
        return OffsetStatus.DONE

    def _inherits(self, offset: int) -> bool:
        index = bisect_right(self._inherited_starts, offset) - 1
        return index >= 0 and offset < self._inherited[index].end

    def _finish(self, start: int, end: int) -> None:
        """Join [start, end) with the runs it touches, and with the watermark if it touches that."""
        self._moved = True
        if start in self._start_of:
            start = self._start_of.pop(start)
            del self._end_of[start]
        if end in self._end_of:
            end = self._end_of.pop(end)
            del self._start_of[end]
        if start == self._watermark:
            self._watermark = end
        else:
            self._end_of[start] = end
            self._start_of[end] = start
