"""Names in Redis and in the ledger by which recoveries share Celery's work.

Each recovery looks at its own lanes and can work on these alone. So recoveries of the same lanes share a
queue and a beat, and those of other lanes have their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Final, NamedTuple

from message.vocabulary import LANES

_QUEUE: Final = "recovery"
_DUTY: Final = "beat"
_DIGITS: Final = 12


class CeleryNames(NamedTuple):
    """Names for the recoveries that serve one set of lanes."""

    queue: str
    """The queue of their tasks."""
    duty: str
    """The duty of the beat that sends them (idempotency/fleet/duties.py)."""


def names_of(lanes: Collection[str]) -> CeleryNames:
    """Returns the names for these lanes: plain ones for all lanes, else with a digest of theirs."""
    served = sorted(set(lanes))
    if len(served) == len(LANES):
        return CeleryNames(_QUEUE, _DUTY)
    share = hashlib.sha256(" ".join(served).encode()).hexdigest()[:_DIGITS]
    return CeleryNames(f"{_QUEUE}-{share}", f"{_DUTY}-{share}")
