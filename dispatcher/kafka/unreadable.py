"""Unreadable batches: passed over offset by offset, after several tries each.

librdkafka reports a batch whose checksum is wrong, or which it cannot decompress within
`receive.message.max.bytes`, and fetches it again for ever. After several tries its offset is given up; the
source makes a dead letter of it. The report names the batch's first offset, not its number of records. So
one offset is passed at a time, and no record of the next batch is lost
(docs/decisions/066-what-cannot-be-read.md).
"""

from __future__ import annotations

from typing import Final, NamedTuple

CODES: Final = frozenset({"_BAD_COMPRESSION", "_BAD_MSG"})
REASON: Final = "unreadable_batch"
TRIES: Final = 5
APART_S: Final = 0.2
"""Closer reports count once: they may be older than the last move of the partition's position."""

Place = tuple[str, int]


class _Tries(NamedTuple):
    offset: int
    number: int
    last_at: float


class UnreadableBatches:
    """Counts tries, one offset a partition. Belongs to the source's thread."""

    def __init__(self) -> None:
        self._tries: dict[Place, _Tries] = {}

    def give_up(self, place: Place, offset: int, now: float) -> bool:
        """Counts a failed try at this offset. Returns whether to pass over it now."""
        known = self._tries.get(place)
        if known is None or known.offset != offset:
            self._tries[place] = _Tries(offset, 1, now)
            return False
        if now - known.last_at < APART_S:
            return False
        number = known.number + 1
        if number < TRIES:
            self._tries[place] = _Tries(offset, number, now)
            return False
        del self._tries[place]
        return True
