"""Judges a run of `benchmarks.ordered` by the provider's book and the ledger. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from message.envelope import Notification
from message.states import OPEN
from simulator.ledger import LedgerRecord

_MS: Final = 1_000
_TAIL: Final = 0.98
"""Of the ordered deliveries left, those that are timed: the last one waits out a back-off alone."""


class OrderedVerdict(msgspec.Struct):
    """Each must be 0."""

    lost: int
    """Never accepted by the provider."""
    doubled: int
    """Accepted more than once."""
    out_of_order: int
    """Accepted before an earlier one of their key."""
    not_terminal: int


def judged(
    made: Sequence[Notification], records: Sequence[LedgerRecord], states: Mapping[str, int]
) -> OrderedVerdict:
    """Returns what is wrong with the run; `states` counts the ledger's rows by state."""
    accepted = [record for record in records if record.accepted]
    places: dict[str, int] = {}
    for record in accepted:
        places.setdefault(record.id, record.seq)
    return OrderedVerdict(
        lost=sum(item.id not in places for item in made),
        doubled=len(accepted) - len(places),
        out_of_order=_out_of_order(made, places),
        not_terminal=sum(count for state, count in states.items() if state in OPEN),
    )


def _out_of_order(made: Sequence[Notification], places: Mapping[str, int]) -> int:
    lines: dict[str, list[int]] = {}
    for item in made:
        if item.ordering_key is not None and item.id in places:
            lines.setdefault(item.ordering_key, []).append(places[item.id])
    return sum(later < earlier for line in lines.values() for earlier, later in pairwise(line))


def ordered_rate(
    made: Sequence[Notification], records: Sequence[LedgerRecord], since_ms: int
) -> float:
    """Ordered deliveries a second that arrived after `since_ms`; 0 for the whole run."""
    ordered = {item.id for item in made if item.ordering_key is not None}
    times = sorted(r.at_ms for r in records if r.accepted and r.id in ordered)
    times = [at for at in times if at >= since_ms]
    timed = times[: max(2, int(len(times) * _TAIL))]
    if len(timed) < 2 or timed[-1] == timed[0]:
        raise RuntimeError("too few ordered deliveries were left after the last fault: take more")
    return round((len(timed) - 1) / (timed[-1] - timed[0]) * _MS, 1)
