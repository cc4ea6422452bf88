"""Health of the fleet in the ledger: lost processes, and rows that wait for too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import text

from idempotency.lost.findings import FindingCount, counted
from idempotency.outcomes.outbox import OutcomesWaiting, outcomes_waiting
from idempotency.transactions import LedgerPart

HEARTBEAT_LOST: Final = "heartbeat_lost"
# One life is lost once, however long its row stays.
_LOST: Final = text("""
SELECT id, host, pid, heartbeat_at FROM workers AS w
 WHERE (state = 'DEAD' OR (state NOT IN ('DEAD', 'RETIRED') AND heartbeat_at + 2 * lease_ms < :now))
   AND heartbeat_at > :since
   AND NOT EXISTS (SELECT 1 FROM alerts AS a
                    WHERE a.rule = :rule AND a.subject = w.id AND a.last_at >= w.heartbeat_at)
 ORDER BY heartbeat_at""")
_DOUBTS: Final = text("""
SELECT lane, min(since) AS oldest
  FROM (SELECT lane, updated_at AS since FROM deliveries WHERE state = 'UNKNOWN' LIMIT :bound) AS u
 GROUP BY lane""")
_BOUND: Final = 10_000
# For each lane the first entry of the indexes that recovery reads.
OVERDUE: Final = """
SELECT v.column1 AS lane,
       (SELECT {least}(d.next_at, d.expires_at) FROM deliveries AS d
         WHERE d.state = 'RETRY' AND d.lane = v.column1 AND {least}(d.next_at, d.expires_at) <= :now
         ORDER BY {least}(d.next_at, d.expires_at) LIMIT 1) AS due,
       (SELECT coalesce(d.next_at, d.updated_at) FROM deliveries AS d
         WHERE d.state = 'UNKNOWN' AND d.lane = v.column1
           AND coalesce(d.next_at, d.updated_at) <= :now
         ORDER BY coalesce(d.next_at, d.updated_at) LIMIT 1) AS doubt
  FROM (VALUES {lanes}) AS v"""


class Lost(NamedTuple):
    """A process whose heartbeat ended before it retired; epoch milliseconds by the database's clock."""

    id: str
    host: str
    pid: int
    heartbeat_at: int


class Overdue(NamedTuple):
    """Waits of a lane's oldest rows for recovery, in milliseconds; 0: none waits."""

    lane: str
    due_ms: int
    """Of a row to send again."""
    doubt_ms: int
    """Of a row to ask about."""


class FleetHealth(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def lost(self, within_ms: int) -> list[Lost]:
        """Returns workers and recoveries whose heartbeat was lost in the last `within_ms`, unless an alert
        has noted the loss."""
        with self._begin() as (connection, now):
            times = {"now": now, "since": now - within_ms, "rule": HEARTBEAT_LOST}
            found = connection.execute(_LOST, times).all()
        return [Lost(row.id, row.host, row.pid, row.heartbeat_at) for row in found]

    def doubts(self, age_ms: int) -> dict[str, int]:
        """Returns lane to the age of its oldest doubt in milliseconds, where that is at least `age_ms`.

        Reads at most 10,000 doubts: with more of them there is no lack of alerts.
        """
        with self._begin() as (connection, now):
            found = connection.execute(_DOUBTS, {"bound": _BOUND}).all()
        return {row.lane: now - row.oldest for row in found if now - row.oldest >= age_ms}

    def outcomes_waiting(self) -> list[OutcomesWaiting]:
        """Returns the outcome events that are not published, by target."""
        with self._begin() as (connection, now):
            return outcomes_waiting(connection, now)

    def findings(self, within_ms: int) -> list[FindingCount]:
        """Returns the numbers of deliveries found lost that are undecided, or were found in the last
        `within_ms` and entered."""
        with self._begin() as (connection, now):
            return counted(connection, now - within_ms)

    def overdue(self, lanes: Sequence[str]) -> list[Overdue]:
        """Returns the waits of each lane's oldest rows that recovery should have taken. Rows that a worker
        gave back wait for the next reader of their Kafka record, and do not count."""
        named = {f"lane{number}": lane for number, lane in enumerate(lanes)}
        least = "least" if self._database.is_postgres else "min"
        places = ", ".join(f"(:{name})" for name in named)
        statement = text(OVERDUE.format(least=least, lanes=places))
        with self._begin() as (connection, now):
            found = connection.execute(statement, {**named, "now": now}).all()
        return [
            Overdue(row.lane, now - (row.due or now), now - (row.doubt or now)) for row in found
        ]
