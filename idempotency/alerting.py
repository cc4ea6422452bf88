"""Alerts in the ledger: each is told once in its window by the whole fleet, and what went wrong there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, text

from backends.sql import Database
from idempotency.edge import errors
from idempotency.workers import Clock

_ENTER = text("""
INSERT INTO alerts (rule, subject, told_at, kept) VALUES (:rule, :subject, 0, 0)
ON CONFLICT DO NOTHING""")
# The update locks the row, so of two who ask at once the second sees what the first one wrote.
_KEEP = text("UPDATE alerts SET kept = kept + :count WHERE rule = :rule AND subject = :subject")
_STANDS = text("SELECT told_at, kept FROM alerts WHERE rule = :rule AND subject = :subject")
_TELL = text("UPDATE alerts SET told_at = :now, kept = 0 WHERE rule = :rule AND subject = :subject")
_LOST = text("""
SELECT id, host, pid, heartbeat_at FROM workers
 WHERE (state = 'DEAD' OR (state NOT IN ('DEAD', 'RETIRED') AND heartbeat_at + 2 * lease_ms < :now))
   AND heartbeat_at > :since
 ORDER BY heartbeat_at""")


_DOUBTS = text("""
SELECT lane, min(since) AS oldest
  FROM (SELECT lane, updated_at AS since FROM deliveries WHERE state = 'UNKNOWN' LIMIT :bound) AS u
 GROUP BY lane""")
_BOUND: Final = 10_000


class Lost(NamedTuple):
    """A process whose heartbeat ended without a farewell; epoch milliseconds by the database's clock."""

    id: str
    host: str
    pid: int
    heartbeat_at: int


class AlertWindows:
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def due(
        self, seen: Mapping[tuple[str, str], int], window_ms: int
    ) -> dict[tuple[str, str], int]:
        """`seen`: (rule, subject) to how often it came up. Those that are now this caller's to tell, with
        how often in all since it was told before; whoever asks next within the window is told of none."""
        told = {}
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            for (rule, subject), count in sorted(seen.items()):
                row = _counted(connection, {"rule": rule, "subject": subject}, count)
                if row.told_at == 0 or row.told_at + window_ms <= now:
                    values = {"rule": rule, "subject": subject, "now": now}
                    connection.execute(_TELL, values)
                    told[rule, subject] = int(row.kept)
        return told

    def lost(self, within_ms: int) -> list[Lost]:
        """Workers and recoveries whose heartbeat was lost in the last `within_ms`."""
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            found = connection.execute(_LOST, {"now": now, "since": now - within_ms}).all()
        return [Lost(row.id, row.host, row.pid, row.heartbeat_at) for row in found]

    def doubts(self, age_ms: int) -> dict[str, int]:
        """Lane to the age of its oldest doubt in milliseconds, where that is at least `age_ms`.

        Of more than 10,000 doubts only so many are looked at: by then there is no lack of alerts.
        """
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            found = connection.execute(_DOUBTS, {"bound": _BOUND}).all()
        return {row.lane: now - row.oldest for row in found if now - row.oldest >= age_ms}


def _counted(connection: Connection, name: dict[str, str], count: int) -> Row[Any]:
    connection.execute(_ENTER, name)
    connection.execute(_KEEP, name | {"count": count})
    return connection.execute(_STANDS, name).one()
