"""The arithmetic of batches: places in a worker number's row of ids.

A place counts ids: milliseconds since the epoch times PER_MS, plus the sequence. The place after the
last one of a millisecond is the first one of the next. A batch that is too large for its time borrows from
the future. A clock that went back changes nothing but the times.
"""

from __future__ import annotations

from message.snowflake import EPOCH_MS, PER_MS, SEQUENCE_BITS, WORKER_BITS

_MASK = PER_MS - 1


def first_place(at_ms: int) -> int:
    """Returns the first place of a millisecond."""
    return (at_ms - EPOCH_MS) << SEQUENCE_BITS


def time_of(place: int) -> int:
    """Returns the millisecond of a place, since the Unix epoch."""
    return EPOCH_MS + (place >> SEQUENCE_BITS)


def ids_between(first: int, end: int, worker: int) -> list[int]:
    """Returns the ids of the places from `first` up to `end`, without `end`, in order."""
    found: list[int] = []
    while first < end:
        offset = first & _MASK
        count = min(PER_MS - offset, end - first)
        start = ((first - offset) << WORKER_BITS) | (worker << SEQUENCE_BITS) | offset
        found.extend(range(start, start + count))
        first += count
    return found
