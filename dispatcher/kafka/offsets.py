"""The lowest contiguous completed offset of one assigned partition.

A completion costs a few dictionary look-ups; the cost of a commit grows with the number of runs. All of it
belongs to the source's thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from dispatcher.kafka.offset_metadata import OffsetRange


class OffsetStatus(Enum):
    """The tracker's answer for a polled offset."""

    NEW = "new"
    """Registered; it holds the watermark until completed."""
    DONE = "done"
    """A predecessor completed it: nothing to do."""
    OPEN = "open"
    """Registered already and not completed: the same record again."""
    REWOUND = "rewound"
    """Below the watermark: the log began anew, or a seek went back. Needs a new tracker."""


class Offsets:
    """Tracks the done offsets of one partition. `start` is the committed offset; None without one.

    Offsets that the broker never shows (compaction, transaction markers, aborted records, retention) count
    as done once a later one arrives; dispatcher/kafka/removed_records.py reports lost records.
    """

    def __init__(
        self,
        start: int | None = None,
        done: Sequence[OffsetRange] = (),
        on_gap: Callable[[int, int], None] | None = None,
    ) -> None:
        """`on_gap` gets each gap: its first offset, and the offset after it."""
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
        """The offset to commit: all below is done. None before the first record."""
        return self._watermark

    @property
    def expected(self) -> int | None:
        """The next offset, if none is missing. None before the first record."""
        return self._next

    @property
    def untouched(self) -> bool:
        """Whether nothing was completed since the assignment."""
        return not self._moved

    @property
    def outstanding(self) -> int:
        """Number of records registered and not completed."""
        return len(self._open)

    @property
    def oldest(self) -> float | None:
        """Monotonic time at which the lowest outstanding record was registered; None without one."""
        return next(iter(self._open.values()), None)

    def register(self, offset: int, now: float) -> OffsetStatus:
        """Registers a polled offset at monotonic time `now`."""
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
        """Marks a record as settled, or owned by the ledger. A second call for one offset does nothing."""
        if self._open.pop(offset, None) is not None:
            self._finish(offset, offset + 1)

    def complete_all(self, offsets: Iterable[int]) -> None:
        """Calls `complete` for each."""
        for offset in offsets:
            self.complete(offset)

    def runs(self) -> list[OffsetRange]:
        """Returns the done runs above the watermark, sorted, apart."""
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
        """Joins [start, end) with adjacent runs, and with the watermark if adjacent."""
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
