"""The alerts as a person sees them: open ones, their reports, and silences."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, text

from idempotency.alerts.windows import FIRING
from idempotency.error_mapping import errors
from idempotency.transactions import LedgerPart

_LIST: Final = """
SELECT a.*, s.until AS silenced_until, s.author, s.reason
  FROM alerts AS a
  LEFT JOIN alert_silences AS s
    ON s.rule = a.rule AND s.until > :now
   AND s.subject = (SELECT max(t.subject) FROM alert_silences AS t
                     WHERE t.rule = a.rule AND t.subject IN ('', a.subject) AND t.until > :now)
 WHERE a.state <> '' AND (:every = 1 OR a.state = :firing OR a.kept > 0)
 ORDER BY a.since, a.rule, a.subject LIMIT :limit"""
_SILENCES: Final = text("""
SELECT rule, subject, until, author, reason, made_at FROM alert_silences
 WHERE until > :now ORDER BY rule, subject""")
_SILENCE: Final = text("""
INSERT INTO alert_silences (rule, subject, until, author, reason, made_at)
VALUES (:rule, :subject, :until, :author, :reason, :now)
ON CONFLICT (rule, subject) DO UPDATE
   SET until = excluded.until, author = excluded.author, reason = excluded.reason,
       made_at = excluded.made_at""")
_COUNT_ANEW: Final = text("""
UPDATE alerts SET silenced = 0 WHERE rule = :rule AND (:subject = '' OR subject = :subject)""")
_UNSILENCE: Final = text("DELETE FROM alert_silences WHERE rule = :rule AND subject = :subject")
_ACKNOWLEDGE: Final = text("""
UPDATE alerts SET acknowledged_at = :now, acknowledged_by = :author, acknowledged_why = :reason
 WHERE rule = :rule AND subject = :subject AND state = :firing""")
_FORGET: Final = text("DELETE FROM alert_silences WHERE until <= :now")
_MOST: Final = 1_000


class AlertShown(msgspec.Struct, frozen=True):
    """One alert; times are epoch milliseconds, None where there is none."""

    rule: str
    subject: str
    lane: str
    about: str
    text: str
    state: str
    """firing, cleared, or ended (a single event whose window is over)."""
    since: int
    last_at: int
    told_at: int | None
    kept: int
    """Times that it came up since its last report."""
    not_posted: str
    """Reason why the webhook has not received it; empty: nothing waits for it."""
    silenced_until: int | None
    silenced: int
    """Times that it came up while it was silenced."""
    silenced_by: str
    silenced_why: str
    acknowledged_at: int | None = None
    """Time at which a person took note of it, since it began; None: nobody did."""
    acknowledged_by: str = ""
    acknowledged_why: str = ""


class SilenceShown(msgspec.Struct, frozen=True):
    """One silence; times are epoch milliseconds. An empty subject: every alert of the rule."""

    rule: str
    subject: str
    until: int
    author: str
    reason: str
    made_at: int


class AlertBook(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def alerts(self, *, every: bool = False) -> list[AlertShown]:
        """Returns alerts that are open or not fully reported, oldest first, at most 1,000; `every` adds
        those that are over."""
        asked = {"every": int(every), "firing": FIRING, "limit": _MOST}
        with self._begin() as (connection, now):
            found = connection.execute(text(_LIST), {**asked, "now": now}).all()
        return [
            AlertShown(
                *(row.rule, row.subject, row.lane, row.about, row.text, row.state),
                *(row.since, row.last_at, row.told_at or None, row.kept),
                not_posted=row.post_error if row.next_try is not None else "",
                silenced_until=row.silenced_until,
                silenced=row.silenced,
                silenced_by=row.author or "",
                silenced_why=row.reason or "",
                **_acknowledgement(row),
            )
            for row in found
        ]

    def silences(self) -> list[SilenceShown]:
        """Returns the silences that hold now."""
        with self._begin() as (connection, now):
            found = connection.execute(_SILENCES, {"now": now}).all()
        return [SilenceShown(*row) for row in found]

    def silence(
        self, rule: str, subject: str, for_ms: int, *, author: str, reason: str
    ) -> SilenceShown:
        """Holds back posts and log lines of these alerts for `for_ms`. Replaces a silence of the same name.
        An empty subject: every alert of the rule."""
        with self._transaction() as connection:
            return self.silence_in(connection, rule, subject, for_ms, author=author, reason=reason)

    def silence_in(
        self,
        connection: Connection,
        rule: str,
        subject: str,
        for_ms: int,
        *,
        author: str,
        reason: str,
    ) -> SilenceShown:
        """As `silence`, in the caller's transaction."""
        name, now = {"rule": rule, "subject": subject}, self.clock(connection)
        made = {"until": now + for_ms, "author": author, "reason": reason, "now": now}
        connection.execute(_FORGET, {"now": now})
        connection.execute(_SILENCE, name | made)
        connection.execute(_COUNT_ANEW, name)
        return SilenceShown(rule, subject, now + for_ms, author, reason, now)

    def unsilence(self, rule: str, subject: str) -> bool:
        """Ends a silence. Returns False if there is none of that name."""
        with errors(), self._database.begin() as connection:
            return self.unsilence_in(connection, rule, subject)

    def unsilence_in(self, connection: Connection, rule: str, subject: str) -> bool:
        """As `unsilence`, in the caller's transaction."""
        name = {"rule": rule, "subject": subject}
        return bool(connection.execute(_UNSILENCE, name).rowcount)

    def acknowledge_in(
        self, connection: Connection, rule: str, subject: str, *, author: str, reason: str
    ) -> bool:
        """Records that a person took note of a firing alert; it goes on being posted. Returns False if it
        does not fire."""
        name = {"rule": rule, "subject": subject, "firing": FIRING}
        noted = {"now": self.clock(connection), "author": author, "reason": reason}
        return bool(connection.execute(_ACKNOWLEDGE, name | noted).rowcount)


def _acknowledgement(row: Row[Any]) -> dict[str, Any]:
    """Returns the fields of an acknowledgement; none for one of an earlier time of the alert."""
    if not row.acknowledged_at or row.acknowledged_at < row.since:
        return {}
    return {
        "acknowledged_at": row.acknowledged_at,
        "acknowledged_by": row.acknowledged_by,
        "acknowledged_why": row.acknowledged_why,
    }
