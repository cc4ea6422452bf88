"""Selects the deliveries of `hongyan resend` and `hongyan deliveries list`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from hongyan.errors import NotDone, WrongUsage
from hongyan.flags import duration_ms, patterns

if TYPE_CHECKING:
    from idempotency.archive.lookup import ArchivedDeliveries
    from idempotency.recovery.selection import Wanted
    from idempotency.sql_ledger import SqlLedger

LEASE_MS: Final = 60_000
"""A job that died keeps others out for at most so long."""
_MS: Final = 1_000


class Filters(NamedTuple):
    """The options that narrow a selection by state, as they were given."""

    states: Sequence[str]
    lanes: Sequence[str] | None
    since: str
    account: str
    row_reason: str


def wanted(filters: Filters, allowed: Sequence[str], now: int, *, doubted: bool | None) -> Wanted:
    """Returns the selection that the options name. Raises WrongUsage for a state that is not allowed."""
    from idempotency.recovery.selection import Wanted
    from message.states import State
    from message.vocabulary import lanes_matching

    names = [name.upper() for name in filters.states]
    for given, name in zip(filters.states, names, strict=True):
        if name not in allowed:
            raise WrongUsage(f"--state {given}: here it may be {', '.join(allowed)}")
    lanes = lanes_matching(patterns(list(filters.lanes) if filters.lanes else None) or ["*"])
    return Wanted(
        states=[State(name) for name in dict.fromkeys(names)],
        lanes=[lane.name for lane in lanes],
        since=now - duration_ms("--since", filters.since) if filters.since else 0,
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
    """Holds the lease of selections for one job; yields a function that renews it. Raises NotDone."""
    from recovery.operator_actions import DUTY

    rows, holder = ledger.recovering(), f"{job}-{secrets.token_hex(4)}"

    def hold() -> None:
        if not dry_run and not rows.hold(DUTY, holder, LEASE_MS):
            raise NotDone(
                "another resend job is under way: run this one again when that has ended, or a minute"
                " after it died"
            )

    hold()
    try:
        yield hold
    finally:
        rows.drop(DUTY, holder)
