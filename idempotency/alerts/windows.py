"""Alerts in the ledger: counted, told once in a window by the whole fleet, posted until the webhook has
them, and silenced. The clock is the database's.

A row is one alert. `kept` is how often it came up and was not told yet; what is told adds to `post_count`
until a post arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Row

from backends.sql.database import Database
from idempotency.alerts import statements as sql
from idempotency.error_mapping import errors
from idempotency.fleet.worker_leases import Clock

FIRING: Final = "firing"
CLEARED: Final = "cleared"
ENDED: Final = "ended"
_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 300_000
POST_FOR_MS: Final = 86_400_000
"""A post that did not arrive for so long is given up."""
KEPT_FOR_MS: Final = 30 * 86_400_000
"""An alert that is over leaves the table after so long."""


class Raised(msgspec.Struct, frozen=True):
    """An alert that came up."""

    rule: str
    lane: str
    about: str
    text: str
    count: int
    """How often since it was noted before; for a lasting one the ledger counts beginnings instead."""
    lasting: bool = False
    """It is raised again and again until it is over."""
    after: int = 0
    """Not 0: counts only where the alert was last noted before this time, in epoch milliseconds."""

    @property
    def subject(self) -> str:
        """With the rule, the alert's name."""
        return f"{self.lane} {self.about}".strip()


class Told(msgspec.Struct, frozen=True):
    """An alert that the caller has to tell."""

    rule: str
    lane: str
    about: str
    text: str
    state: str
    count: int
    """How often it came up since it was told before; 0: it goes on."""
    since: int
    """When it began, epoch milliseconds."""


class Post(NamedTuple):
    """What one post says, and whose row it is. Times are epoch milliseconds."""

    subject: str
    told: Told
    at: int
    by: str
    """The process that told it."""


class AlertWindows:
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = " FOR UPDATE SKIP LOCKED" if database.is_postgres else ""

    def note(self, raised: Sequence[Raised], window_ms: int, by: str) -> list[Told]:
        """Counts what came up. Returns those that are now the caller's to tell; whoever notes them next
        within the window gets none of them."""
        told = []
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            for one in sorted(raised, key=lambda one: (one.rule, one.subject)):
                row = _noted(connection, one, now)
                if row.told_at + window_ms <= now and (row.kept or row.lasting):
                    told += _tell(connection, row, FIRING, now, by)
        return told

    def upkeep(self, window_ms: int, clear_ms: int, by: str) -> list[Told]:
        """Tells what was kept back once its window is over, and what is over: a lasting alert that nobody
        raised for `clear_ms`; 0: nothing is taken for over. Returns what the caller has to tell."""
        told = []
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            times = {"now": now, "window": window_ms, "clear": clear_ms}
            found = connection.execute(sql.waiting(self._lock), times).all()
            for row in found:
                told += _kept_up(connection, row, times, by)
            connection.execute(sql.GIVE_UP, {"before": now - POST_FOR_MS})
            connection.execute(sql.FORGET, {"before": now - KEPT_FOR_MS})
        return told

    def claim_post(self, lease_ms: int) -> Post | None:
        """The next post that is due becomes the caller's for `lease_ms`; None if there is none."""
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
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
        return Post(row.subject, Told(*fields), row.post_at, row.told_by)

    def posted(self, post: Post) -> None:
        """It arrived; what was told of the alert meanwhile is due now."""
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            connection.execute(sql.POSTED, _of_post(post) | {"count": post.told.count, "now": now})

    def not_posted(self, post: Post, error: str) -> None:
        """It did not arrive; it is due again later, ever more rarely."""
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            name = _of_post(post)
            tries = connection.execute(sql.TRIES, name).scalar_one_or_none() or 0
            pause = min(_FIRST_PAUSE_MS * 2 ** min(tries, 10), _LONGEST_PAUSE_MS)
            connection.execute(sql.NOT_POSTED, name | {"next_try": now + pause, "error": error})


def _noted(connection: Connection, one: Raised, now: int) -> Row[Any]:
    name = {"rule": one.rule, "subject": one.subject}
    connection.execute(sql.ENTER, name)
    # The update locks the row, so of two who note at once the second sees what the first one wrote.
    seen = {"lane": one.lane, "about": one.about, "text": one.text, "count": one.count}
    seen |= {"lasting": int(one.lasting), "after": one.after, "now": now}
    connection.execute(sql.NOTE, name | seen)
    return connection.execute(sql.STANDS, name | {"now": now}).one()


def _kept_up(connection: Connection, row: Row[Any], times: dict[str, int], by: str) -> list[Told]:
    """What one row that waits has to tell now; its state follows."""
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


def _tell(connection: Connection, row: Row[Any], state: str, now: int, by: str) -> list[Told]:
    """Marks the row as told, for the webhook too. A silenced alert is counted instead; that it is over is
    told all the same where its beginning was."""
    name = {"rule": row.rule, "subject": row.subject}
    begun = row.told_at >= row.since
    if row.silences and not (state == CLEARED and begun):
        connection.execute(sql.COUNT_SILENCED, name)
        return []
    count = row.kept if begun or state == CLEARED else max(1, row.kept)
    told_at = row.told_at if state == CLEARED and begun else now
    telling = {"state": state, "count": count, "told_at": told_at, "now": now, "by": by}
    connection.execute(sql.TELL, name | telling)
    return [Told(row.rule, row.lane, row.about, row.text, state, count, row.since)]


def _of_post(post: Post) -> dict[str, Any]:
    return {"rule": post.told.rule, "subject": post.subject, "at": post.at}
