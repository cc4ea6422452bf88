"""Alerts in the ledger: counted, reported once in a window by the whole fleet, posted to the webhook until
it has them, and silenced. The clock is the database's.

A row is one alert. `kept` counts how often it came up since its last report. A report moves this count to
`post_count`, until a post arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Row

from backends.sql.database import Database
from idempotency.alerts import statements as sql
from idempotency.transactions import Clock, LedgerPart

FIRING: Final = "firing"
CLEARED: Final = "cleared"
ENDED: Final = "ended"
_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 300_000
POST_FOR_MS: Final = 86_400_000
"""A post that did not arrive is given up after so long."""
KEPT_FOR_MS: Final = 30 * 86_400_000
"""An alert that is over leaves the table after so long."""


class Raised(msgspec.Struct, frozen=True):
    """An alert that came up."""

    rule: str
    lane: str
    about: str
    text: str
    count: int
    """Times since the last `note`; for a lasting alert the ledger counts beginnings instead."""
    lasting: bool = False
    """True for an alert that is raised again and again until it is over."""
    after: int = 0
    """Not 0: counts only where the alert was last noted before this time, in epoch milliseconds."""

    @property
    def subject(self) -> str:
        """With the rule, the alert's name."""
        return f"{self.lane} {self.about}".strip()


class AlertReport(msgspec.Struct, frozen=True):
    """An alert that the caller must report."""

    rule: str
    lane: str
    about: str
    text: str
    state: str
    count: int
    """Times that it came up since the last report; 0: it goes on."""
    since: int
    """Its beginning, epoch milliseconds."""


class Post(NamedTuple):
    """One post and its alert's row. Times are epoch milliseconds."""

    subject: str
    report: AlertReport
    at: int
    by: str
    """The process that reported it."""


class AlertWindows(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._lock = " FOR UPDATE SKIP LOCKED" if database.is_postgres else ""

    def note(self, raised: Sequence[Raised], window_ms: int, by: str) -> list[AlertReport]:
        """Counts the alerts. Returns those that this caller must report; other callers get none of them
        within the window."""
        reports = []
        with self._begin() as (connection, now):
            for one in sorted(raised, key=lambda one: (one.rule, one.subject)):
                row = _noted(connection, one, now)
                if row.told_at + window_ms <= now and (row.kept or row.lasting):
                    reports += _tell(connection, row, FIRING, now, by)
        return reports

    def upkeep(self, window_ms: int, clear_ms: int, by: str) -> list[AlertReport]:
        """Ends alerts that are over: a lasting one after `clear_ms` without a raise (0: never). Returns the
        alerts that the caller must report: those kept back until now, and lasting ones that are over."""
        reports = []
        with self._begin() as (connection, now):
            times = {"now": now, "window": window_ms, "clear": clear_ms}
            found = connection.execute(sql.waiting(self._lock), times).all()
            for row in found:
                reports += _kept_up(connection, row, times, by)
            connection.execute(sql.GIVE_UP, {"before": now - POST_FOR_MS})
            connection.execute(sql.FORGET, {"before": now - KEPT_FOR_MS})
        return reports

    def claim_post(self, lease_ms: int) -> Post | None:
        """Leases the next due post to the caller for `lease_ms`. Returns None if there is none."""
        with self._begin() as (connection, now):
            row = connection.execute(sql.next_post(self._lock), {"now": now}).one_or_none()
            if row is None:
                return None
            name = {"rule": row.rule, "subject": row.subject}
            connection.execute(sql.LEASE_POST, name | {"until": now + lease_ms})
        fields = (
            row.rule,
            row.lane,
            row.about,
            row.text,
            row.post_state,
            row.post_count,
            row.since,
        )
        return Post(row.subject, AlertReport(*fields), row.post_at, row.told_by)

    def posted(self, post: Post) -> None:
        """Records that it arrived; a later report of the alert is due now."""
        with self._begin() as (connection, now):
            connection.execute(
                sql.POSTED, _of_post(post) | {"count": post.report.count, "now": now}
            )

    def not_posted(self, post: Post, error: str) -> None:
        """Records that it did not arrive; it is due again after a growing pause."""
        with self._begin() as (connection, now):
            name = _of_post(post)
            tries = connection.execute(sql.TRIES, name).scalar_one_or_none() or 0
            pause = min(_FIRST_PAUSE_MS * 2 ** min(tries, 10), _LONGEST_PAUSE_MS)
            connection.execute(sql.NOT_POSTED, name | {"next_try": now + pause, "error": error})


def note_in(connection: Connection, raised: Sequence[Raised], now: int) -> None:
    """Counts the alerts in the caller's transaction; the next `upkeep` reports them. The text of an alert
    exists exactly if the change that it is about does."""
    for one in sorted(raised, key=lambda one: (one.rule, one.subject)):
        _noted(connection, one, now)


def _noted(connection: Connection, one: Raised, now: int) -> Row[Any]:
    name = {"rule": one.rule, "subject": one.subject}
    connection.execute(sql.ENTER, name)
    # The update locks the row: the second of two concurrent calls reads the first one's values.
    seen = {"lane": one.lane, "about": one.about, "text": one.text, "count": one.count}
    seen |= {"lasting": int(one.lasting), "after": one.after, "now": now}
    connection.execute(sql.NOTE, name | seen)
    return connection.execute(sql.CURRENT, name | {"now": now}).one()


def _kept_up(
    connection: Connection, row: Row[Any], times: dict[str, int], by: str
) -> list[AlertReport]:
    """Writes the row's state. Returns the report that is due for it now, if any."""
    now, window_ms, clear_ms = times["now"], times["window"], times["clear"]
    tail = row.kept > 0 and row.told_at + window_ms <= now
    state = row.state
    if row.state == FIRING and row.lasting and clear_ms and row.last_at + clear_ms <= now:
        state = CLEARED
    elif row.state == FIRING and not row.lasting and row.last_at + window_ms <= now:
        state = ENDED
    if state != row.state:
        name = {"rule": row.rule, "subject": row.subject}
        connection.execute(sql.CHANGE, name | {"state": state})
    over = state == CLEARED and row.state == FIRING and row.told_at >= row.since
    if not tail and not over:
        return []
    return _tell(connection, row, CLEARED if state == CLEARED else FIRING, now, by)


def _tell(
    connection: Connection, row: Row[Any], state: str, now: int, by: str
) -> list[AlertReport]:
    """Marks the row as reported, for the webhook too. A silenced alert is counted instead; its end is
    reported all the same if its beginning was."""
    name = {"rule": row.rule, "subject": row.subject}
    begun = row.told_at >= row.since
    if row.silences and not (state == CLEARED and begun):
        connection.execute(sql.COUNT_SILENCED, name)
        return []
    count = row.kept if begun or state == CLEARED else max(1, row.kept)
    told_at = row.told_at if state == CLEARED and begun else now
    telling = {"state": state, "count": count, "told_at": told_at, "now": now, "by": by}
    connection.execute(sql.TELL, name | telling)
    return [AlertReport(row.rule, row.lane, row.about, row.text, state, count, row.since)]


def _of_post(post: Post) -> dict[str, Any]:
    return {"rule": post.report.rule, "subject": post.subject, "at": post.at}
