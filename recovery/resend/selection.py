"""Selects the deliveries of a person's resend, or of a list."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple

from idempotency.archive.lookup import ArchivedDeliveries
from idempotency.recovery.selection import Wanted
from idempotency.sql_ledger import SqlLedger
from message.states import State
from message.vocabulary import lanes_matching
from recovery.operator_actions import DUTY
from recovery.resend.errors import ResendNotDone, SelectionRefused

LEASE_MS: Final = 60_000
"""A job that died keeps others out for at most so long."""
_MS: Final = 1_000


class Filters(NamedTuple):
    """The conditions of a selection by state, as they were given."""

    states: Sequence[str]
    lanes: Sequence[str]
    """Patterns; none: all lanes."""
    age_ms: int | None
    """Longest time in the state; None: any."""
    account: str
    row_reason: str


def wanted(filters: Filters, allowed: Sequence[str], now: int, *, doubted: bool | None) -> Wanted:
    """Returns the selection of the conditions. Raises SelectionRefused for a state that is not allowed, and
    LanePatternError."""
    names = [name.upper() for name in filters.states]
    for given, name in zip(filters.states, names, strict=True):
        if name not in allowed:
            raise SelectionRefused(f"--state {given}: here it may be {', '.join(allowed)}")
    lanes = lanes_matching(list(filters.lanes) or ["*"])
    return Wanted(
        states=[State(name) for name in dict.fromkeys(names)],
        lanes=[lane.name for lane in lanes],
        since=0 if filters.age_ms is None else now - filters.age_ms,
        account=filters.account,
        reason=filters.row_reason,
        doubted=doubted,
    )


def archived_note(archived: ArchivedDeliveries, since: int) -> str:
    """Returns a note if days after `since` (epoch milliseconds) left the ledger; else an empty text.
    Raises LedgerError."""
    newest = archived.newest()
    if newest is None or newest < datetime.fromtimestamp(since / _MS, UTC).date():
        return ""
    return (
        f"days up to {newest} left the ledger, and what they had is not among these: `hongyan resend ID`"
        " finds it in the archive"
    )


@contextmanager
def alone(ledger: SqlLedger, job: str, *, dry_run: bool) -> Iterator[Callable[[], None]]:
    """Holds the lease of selections for one job; yields a function that renews it. Raises
    ResendNotDone."""
    rows, holder = ledger.recovering(), f"{job}-{secrets.token_hex(4)}"

    def hold() -> None:
        if not dry_run and not rows.hold(DUTY, holder, LEASE_MS):
            raise ResendNotDone(
                "another resend job is under way: run this one again when that has ended, or a minute"
                " after it died"
            )

    hold()
    try:
        yield hold
    finally:
        rows.drop(DUTY, holder)
