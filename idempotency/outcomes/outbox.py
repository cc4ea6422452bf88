"""The outbox: batches of ends that wait for their publication. One recovery at a time publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, text

from backends.sql.database import Database
from idempotency.claims.store import MS_PER_DAY
from idempotency.outcomes.statements import EndedRow
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable
from idempotency.transactions import Clock, LedgerPart

BOUND: Final = 10_000
"""Batches that are counted."""

MOST_ENDS: Final = 5_000
"""Ends that one look reads, but for the last batch."""

_DUE: Final = text("""
SELECT b.id, b.tries, b.ends
  FROM (SELECT id, next_at, sum(size) OVER (ORDER BY next_at, id) - size AS before
          FROM (SELECT id, next_at, size FROM outcome_batches
                 WHERE target = :target AND next_at <= :now
                 ORDER BY next_at, id LIMIT :limit) AS due) AS counted
  JOIN outcome_batches AS b ON b.id = counted.id
 WHERE counted.before < :most
 ORDER BY counted.next_at, counted.id""")
_FORGET: Final = text("""
DELETE FROM outcome_batches WHERE target = :target AND written_at < :before RETURNING size""")
_REMOVE: Final = text("DELETE FROM outcome_batches WHERE id IN :ids").bindparams(
    bindparam("ids", expanding=True)
)
_POSTPONE: Final = text("""
UPDATE outcome_batches SET tries = tries + 1, next_at = :now + :delay_ms WHERE id IN :ids""").bindparams(
    bindparam("ids", expanding=True)
)
_WAITING: Final = text("""
SELECT target, coalesce(sum(size), 0) AS ends, min(written_at) AS oldest
  FROM (SELECT target, size, written_at FROM outcome_batches ORDER BY id LIMIT :bound) AS waiting
 GROUP BY target ORDER BY target""")

_decoder = msgspec.json.Decoder(list[EndedRow])


class OutcomeBatch(NamedTuple):
    """One batch that is due."""

    id: int
    tries: int
    """Publications that failed."""
    ends: Sequence[EndedRow]


class OutcomesWaiting(NamedTuple):
    """The backlog of one target."""

    target: str
    ends: int
    """In the oldest 10,000 batches."""
    oldest_ms: int
    """Age of the oldest batch."""


class OutcomeOutbox(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock, sealer: PayloadCipher) -> None:
        super().__init__(database, clock)
        self._sealer = sealer

    def due(self, target: str, limit: int) -> list[OutcomeBatch]:
        """Returns the batches to publish now, the longest due first."""
        asked = {"target": target, "limit": limit, "most": MOST_ENDS}
        with self._begin() as (connection, now):
            rows = connection.execute(_DUE, {**asked, "now": now}).all()
        return [OutcomeBatch(row.id, row.tries, _decoder.decode(row.ends)) for row in rows]

    def remove(self, ids: Sequence[int]) -> None:
        """Deletes batches that were published, and acknowledged."""
        if ids:
            with self._transaction() as connection:
                connection.execute(_REMOVE, {"ids": list(ids)})

    def postpone(self, ids: Sequence[int], delay_ms: int) -> None:
        """Has batches tried again after `delay_ms`."""
        if ids:
            with self._begin() as (connection, now):
                asked = {"ids": list(ids), "now": now, "delay_ms": delay_ms}
                connection.execute(_POSTPONE, asked)

    def forget(self, target: str, keep_days: int) -> int:
        """Deletes batches that are older. Returns the number of their ends."""
        with self._begin() as (connection, now):
            asked = {"target": target, "before": now - keep_days * MS_PER_DAY}
            return sum(connection.execute(_FORGET, asked).scalars())

    def waiting(self) -> list[OutcomesWaiting]:
        """Returns the backlog of each target that has one."""
        with self._begin() as (connection, now):
            return outcomes_waiting(connection, now)

    def receiver_of(self, end: EndedRow) -> str | None:
        """Returns the receiver, opened; None where our key does not open it."""
        try:
            return self._sealer.open(bytes.fromhex(end.receiver), end.message_id).decode()
        except (PayloadUnreadable, UnicodeDecodeError, ValueError):
            return None


def outcomes_waiting(connection: Connection, now: int) -> list[OutcomesWaiting]:
    """Returns the backlog of each target that has one, at the time `now`."""
    rows = connection.execute(_WAITING, {"bound": BOUND}).all()
    return [OutcomesWaiting(row.target, row.ends, max(0, now - row.oldest)) for row in rows]
