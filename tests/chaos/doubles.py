"""Deliveries accepted more than once, and what explains each. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from simulator import LedgerRecord
from tests.chaos.books import Limits
from tests.chaos.history import Move
from tests.harness.books import Row

_SLACK_MS = 500
"""Clocks of two processes."""


class Double(NamedTuple):
    """A delivery accepted more than once; `cause` None: nothing explains it."""

    key: str
    accepted: int
    cause: str | None
    allowed: bool
    """Whether its lane's policy has what is in doubt sent again, and its provider could not be asked."""


def doubles(
    records: Iterable[LedgerRecord],
    rows: Mapping[str, Row],
    moves: Sequence[Move],
    limits: Limits,
) -> list[Double]:
    """Every delivery accepted twice or more.

    A second acceptance is explained when the ledger had the delivery in doubt between the two, and the
    second was made as another attempt. The cause is why it was in doubt.
    """
    accepted: dict[str, list[LedgerRecord]] = defaultdict(list)
    for record in records:
        if record.accepted:
            accepted[record.key].append(record)
    doubted: dict[str, list[Move]] = defaultdict(list)
    for move in moves:
        if move.state == "UNKNOWN":
            doubted[move.delivery_key].append(move)
    return [
        Double(
            key,
            len(several),
            _explanation(several, doubted[key]),
            _by_policy(several, rows.get(key), limits),
        )
        for key, several in accepted.items()
        if len(several) > 1
    ]


def _by_policy(several: Sequence[LedgerRecord], row: Row | None, limits: Limits) -> bool:
    """Each but the last went where nobody could be asked, in a lane that sends again all the same."""
    unasked = all(record.path.startswith(limits.mute) for record in several[:-1])
    return unasked and row is not None and row.lane in limits.resending


def _explanation(several: Sequence[LedgerRecord], doubted: Sequence[Move]) -> str | None:
    causes = []
    moments = [move.at_ms for move in doubted]
    for first, second in pairwise(several):
        at = bisect_left(moments, first.at_ms - _SLACK_MS)
        in_between = at < len(doubted) and moments[at] <= second.at_ms + _SLACK_MS
        if second.attempt <= first.attempt or not in_between:
            return None
        causes.append(f"in doubt: {doubted[at].reason}")
    return ", ".join(causes)


def problems(found: Iterable[Double]) -> list[str]:
    """Those that nothing explains, or that no policy wanted."""
    why = {
        True: "and the ledger never had it in doubt",
        False: "and no policy sends it again",
    }
    return [
        f"{d.key}: accepted {d.accepted} times ({d.cause or 'no cause'}), {why[d.allowed]}"
        for d in found
        if d.cause is None or not d.allowed
    ]
