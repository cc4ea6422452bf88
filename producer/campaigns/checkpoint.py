"""The checkpoint of a run: the last row up to which every row is settled.

Acknowledgements come in any order. A row counts once it and all rows before it are settled, so that a
process that goes on from the checkpoint leaves no gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from producer.campaigns.contract import RunPlace


class RowEnd(StrEnum):
    """Ways in which a row is settled."""

    SENT = "sent"
    BAD = "bad"
    REPEATED = "repeated"


class PendingRow:
    """A row that was taken up. `end` is None until it is settled."""

    __slots__ = ("end", "line", "number", "place", "record")

    def __init__(self, number: int, line: int, place: int) -> None:
        self.number = number
        self.line = line
        """Its last line."""
        self.place = place
        """The byte after it."""
        self.end: RowEnd | None = None
        self.record: tuple[int, int] | None = None
        """Partition and offset of its record, once it is acknowledged."""


class Checkpoint:
    """For one thread."""

    def __init__(self, reached: RunPlace, positions: Mapping[int, int] | None = None) -> None:
        """`positions` are the topic's ends before the first of these rows is produced."""
        self.reached = reached
        """The place up to which every row is settled."""
        self._positions = dict(positions or {})
        self._open: deque[PendingRow] = deque()

    def __len__(self) -> int:
        """The rows that were taken up after the place reached."""
        return len(self._open)

    @property
    def unsettled(self) -> int:
        """The rows that were taken up and have no end yet."""
        return sum(row.end is None for row in self._open)

    def take_up(self, row: PendingRow) -> None:
        """Adds the next row of the file. Raises ValueError for any other."""
        last = self._open[-1].number if self._open else self.reached.done
        if row.number != last + 1:
            raise ValueError(f"row {row.number} does not follow row {last}")
        self._open.append(row)

    def advance(self) -> bool:
        """Moves the place past all leading settled rows. Returns whether it moved."""
        before = self.reached
        counts = dict.fromkeys(RowEnd, 0)
        last: PendingRow | None = None
        while self._open and (end := self._open[0].end) is not None:
            last = self._open.popleft()
            counts[end] += 1
            if last.record is not None:
                partition, offset = last.record
                self._positions[partition] = max(self._positions.get(partition, 0), offset + 1)
        if last is None:
            return False
        self.reached = msgspec.structs.replace(
            before,
            place=last.place,
            line=last.line,
            done=last.number,
            sent=before.sent + counts[RowEnd.SENT],
            bad=before.bad + counts[RowEnd.BAD],
            repeated=before.repeated + counts[RowEnd.REPEATED],
        )
        return True

    def positions(self) -> dict[int, int]:
        """Returns, by partition, an offset: all records of rows after the place reached lie from it on."""
        found = dict(self._positions)
        for row in self._open:
            if row.record is not None:
                partition, offset = row.record
                found[partition] = min(found.get(partition, offset), offset)
        return found
