"""Bounded batches of letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sending.dead_letters.reader import DeadLetter

BATCH: Final = 100
"""Letters that are held, put on record and produced together; each may have 1 MiB."""
_BATCH_BYTES: Final = 32 << 20


def batches(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Yields batches in topic order, each sorted by age; an origin occurs once in a batch."""
    batch: dict[str, DeadLetter] = {}
    size = 0
    for letter in letters:
        batch[letter.origin or letter.place] = letter
        size += len(letter.value or b"")
        if len(batch) == BATCH or size >= _BATCH_BYTES:
            yield sorted(batch.values(), key=lambda one: (one.at, one.place))
            batch, size = {}, 0
    if batch:
        yield sorted(batch.values(), key=lambda one: (one.at, one.place))
