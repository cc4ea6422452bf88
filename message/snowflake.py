"""Snowflake ids: 63 bits in a signed 64-bit integer, ordered by time (docs/ids.md).

    | 41 bits: milliseconds since EPOCH_MS | 10 bits: worker number | 12 bits: sequence |

The time lasts until September 2094. A worker number has one holder at a time (producer/ids).
"""

from __future__ import annotations

from typing import Final, NamedTuple

EPOCH_MS: Final = 1_735_689_600_000
"""2025-01-01T00:00:00Z. A change would make the ids of two programs equal: it never changes."""
TIME_BITS: Final = 41
WORKER_BITS: Final = 10
SEQUENCE_BITS: Final = 12
WORKERS: Final = 1 << WORKER_BITS
PER_MS: Final = 1 << SEQUENCE_BITS
"""Ids of one worker number in a millisecond."""
LAST_MS: Final = EPOCH_MS + (1 << TIME_BITS) - 1
"""The last millisecond that an id can have."""
MAX_ID: Final = (1 << (TIME_BITS + WORKER_BITS + SEQUENCE_BITS)) - 1

_TIME_SHIFT: Final = WORKER_BITS + SEQUENCE_BITS


class SnowflakeParts(NamedTuple):
    """The three fields of an id; `at_ms` is epoch milliseconds."""

    at_ms: int
    worker: int
    sequence: int


def encode_snowflake(parts: SnowflakeParts) -> int:
    """Returns the id of these fields. Raises ValueError for a field out of its range."""
    if not EPOCH_MS <= parts.at_ms <= LAST_MS:
        raise ValueError(f"at_ms is {parts.at_ms}: an id has a time from {EPOCH_MS} to {LAST_MS}")
    if not 0 <= parts.worker < WORKERS:
        raise ValueError(f"worker is {parts.worker}: there are numbers from 0 to {WORKERS - 1}")
    if not 0 <= parts.sequence < PER_MS:
        raise ValueError(f"sequence is {parts.sequence}: it goes from 0 to {PER_MS - 1}")
    time = (parts.at_ms - EPOCH_MS) << _TIME_SHIFT
    return time | parts.worker << SEQUENCE_BITS | parts.sequence


def decode_snowflake(number: int) -> SnowflakeParts:
    """Returns the fields of an id. Raises ValueError if it is no 63-bit number."""
    if not 0 <= number <= MAX_ID:
        raise ValueError(f"{number} is no snowflake id: it has 63 bits and no sign")
    return SnowflakeParts(
        EPOCH_MS + (number >> _TIME_SHIFT),
        (number >> SEQUENCE_BITS) & (WORKERS - 1),
        number & (PER_MS - 1),
    )
