"""Receipts in PostgreSQL and in SQLite; `idempotency.receipts.rules` decides their effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from backends.settings import Settings
from backends.sql.database import Database
from backends.sql.pg_arrays import array
from idempotency.bounds import NEXT_VERSION, next_version
from idempotency.claims.postgres import columns
from idempotency.error_mapping import connected
from idempotency.lines import PostgresLines, SqliteLines
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.payload_cipher import PayloadCipher
from idempotency.receipts.rules import CandidateRow, StoredReceipt
from idempotency.receipts.store import Closing, ReceiptMove, Receipts
from idempotency.sql_ledger import SqlLedger, wall_ms

_FORGET: Final = 5_000
"""Receipts deleted in one statement."""
_ROW: Final = (
    "d.delivery_key, d.day, d.state, d.version, d.provider_id, d.call_key, d.account, d.receiver,"
    " d.message_id, d.biz_id, d.lane, d.attempt, d.ordering_key,"
    " d.created_at, d.policy_version, d.reason, d.owner, d.updated_at, d.called_at, d.last_called_at,"
    " d.template, d.receiver_hash, d.kafka_topic, d.kafka_partition, d.kafka_offset"
)
# In StoredReceipt's order.
_KEPT: Final = "account, provider_id, call_key, receivers, state, code, at, received_at"

PG_STORE: Final = """
INSERT INTO receipts (account, provider_id, call_key, receivers, state, code, at, received_at, next_at)
SELECT r.*, hongyan_now(), hongyan_now()
  FROM unnest(%(account)s::text[], %(provider_id)s::text[], %(call_key)s::text[],
              %(receivers)s::text[], %(said)s::text[], %(code)s::text[], %(at)s::bigint[]) AS r
ON CONFLICT DO NOTHING"""
# SKIP LOCKED: a concurrent pass takes other receipts.
PG_DUE: Final = f"""
SELECT {_KEPT}, hongyan_now() FROM receipts
 WHERE next_at <= hongyan_now() ORDER BY next_at LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED"""  # noqa: S608 - ours
# As in idempotency.claims.postgres: "= ANY (ARRAY[…])" can use an index and nothing else.
PG_CANDIDATES: Final = f"""
SELECT {_ROW} FROM unnest(%(ids)s::text[]) AS i (id)
  JOIN deliveries AS d ON d.provider_id = ANY (ARRAY[i.id])
 WHERE d.provider_id IS NOT NULL AND substr(d.lane, 1, 8) <> 'webhook.'
UNION ALL
SELECT {_ROW} FROM unnest(%(calls)s::text[]) AS c (key)
  JOIN delivery_keys AS k ON k.delivery_key = ANY (ARRAY[c.key])
  JOIN deliveries AS d ON d.delivery_key = ANY (ARRAY[k.delivery_key]) AND d.day = k.day
 WHERE d.call_key IS NULL OR d.call_key = c.key
UNION ALL
SELECT {_ROW} FROM unnest(%(calls)s::text[]) AS c (key)
  JOIN deliveries AS d ON d.call_key = ANY (ARRAY[c.key])
 WHERE d.call_key IS NOT NULL AND d.provider_id IS NULL AND d.state IN ('UNKNOWN', 'SENT')"""  # noqa: S608 - ours
PG_MOVE: Final = f"""
UPDATE deliveries AS d
   SET state = m.state, reason = m.reason, provider_id = coalesce(d.provider_id, m.provider_id),
       next_at = NULL, updated_at = hongyan_now(), version = {next_version("d")}
  FROM unnest(%(key)s::text[], %(day)s::int[], %(version)s::int[], %(state)s::text[],
              %(reason)s::text[], %(provider_id)s::text[])
           AS m (key, day, version, state, reason, provider_id)
 WHERE d.delivery_key = ANY (ARRAY[m.key]) AND d.day = m.day AND d.version = m.version
   AND d.state || '' IN ('SENT', 'UNKNOWN', 'RETRY')
RETURNING d.delivery_key"""  # noqa: S608 - ours
PG_CLOSE: Final = """
UPDATE receipts AS r
   SET applied = c.applied, delivery_key = c.delivery_key, tries = r.tries + 1,
       applied_at = CASE WHEN c.applied IS NOT NULL THEN hongyan_now() END,
       next_at = hongyan_now() + c.wait_ms
  FROM unnest(%(account)s::text[], %(provider_id)s::text[], %(call_key)s::text[],
              %(receivers)s::text[], %(said)s::text[], %(applied)s::text[], %(wait_ms)s::bigint[],
              %(delivery_key)s::text[])
           AS c (account, provider_id, call_key, receivers, said, applied, wait_ms, delivery_key)
 WHERE r.account = c.account AND r.provider_id = c.provider_id AND r.call_key = c.call_key
   AND r.receivers = c.receivers AND r.state = c.said"""
PG_FORGET: Final = """
DELETE FROM receipts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM receipts WHERE received_at < hongyan_now() - %(keep_ms)s LIMIT %(limit)s))
RETURNING applied"""

LITE_STORE: Final = f"""
INSERT INTO receipts ({_KEPT}, next_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""  # noqa: S608 - ours
LITE_DUE: Final = f"""
SELECT {_KEPT} FROM receipts WHERE next_at <= ? ORDER BY next_at LIMIT ?"""  # noqa: S608 - ours
LITE_CANDIDATES: Final = f"""
SELECT {_ROW} FROM json_each(:ids) AS i JOIN deliveries AS d ON d.provider_id = i.value
 WHERE d.provider_id IS NOT NULL AND substr(d.lane, 1, 8) <> 'webhook.'
UNION ALL
SELECT {_ROW} FROM json_each(:calls) AS c JOIN deliveries AS d ON d.delivery_key = c.value
 WHERE d.call_key IS NULL OR d.call_key = c.value
UNION ALL
SELECT {_ROW} FROM json_each(:calls) AS c JOIN deliveries AS d ON d.call_key = c.value
 WHERE d.call_key IS NOT NULL AND d.provider_id IS NULL AND d.state IN ('UNKNOWN', 'SENT')"""  # noqa: S608 - ours
LITE_MOVE: Final = f"""
UPDATE deliveries
   SET state = ?, reason = ?, provider_id = coalesce(provider_id, ?), next_at = NULL,
       updated_at = ?, version = {NEXT_VERSION}
 WHERE delivery_key = ? AND version = ? AND state IN ('SENT', 'UNKNOWN', 'RETRY')"""  # noqa: S608 - ours
LITE_CLOSE: Final = """
UPDATE receipts
   SET applied = ?, delivery_key = ?, tries = tries + 1, applied_at = ?, next_at = ?
 WHERE account = ? AND provider_id = ? AND call_key = ? AND receivers = ? AND state = ?"""
LITE_FORGET: Final = """
DELETE FROM receipts WHERE rowid IN (SELECT rowid FROM receipts WHERE received_at < ? LIMIT ?)
RETURNING applied"""


class PostgresReceipts(Receipts):
    """Columns travel as arrays, one statement a batch."""

    def __init__(
        self, database: Database, sealer: PayloadCipher, announced: AnnouncedLanes
    ) -> None:
        super().__init__(database, sealer, PostgresLines(), announced)

    def forget(self, keep_ms: int) -> tuple[int, int]:
        with connected(self._database) as connection:
            gone = connection.execute(PG_FORGET, {"keep_ms": keep_ms, "limit": _FORGET}).fetchall()
        return len(gone), sum(became is None for (became,) in gone)

    def _insert(self, rows: Sequence[StoredReceipt]) -> int:
        values = columns(StoredReceipt._fields, rows)
        with connected(self._database) as connection:
            return int(connection.execute(PG_STORE, values, prepare=True).rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with connected(self._database) as connection, connection.transaction():
            yield connection

    def _due(self, connection: Any, limit: int) -> tuple[list[StoredReceipt], int]:
        rows = connection.execute(PG_DUE, {"limit": limit}, prepare=True).fetchall()
        return [StoredReceipt(*row[:-1]) for row in rows], rows[0][-1] if rows else 0

    def _candidates(self, connection: Any, due: Sequence[StoredReceipt]) -> list[CandidateRow]:
        names = {"ids": array(_ids(due)), "calls": array(_calls(due))}
        return [
            CandidateRow(*row) for row in connection.execute(PG_CANDIDATES, names, prepare=True)
        ]

    def _move(self, connection: Any, rows: Sequence[ReceiptMove]) -> set[str]:
        if not rows:
            return set()
        moved = connection.execute(PG_MOVE, columns(ReceiptMove._fields, rows), prepare=True)
        return {key for (key,) in moved}

    def _close(self, connection: Any, rows: Sequence[Closing]) -> None:
        connection.execute(PG_CLOSE, columns(Closing._fields, rows), prepare=True)


class SqliteReceipts(Receipts):
    """One writer at a time; `now` is the clock."""

    def __init__(
        self,
        database: Database,
        sealer: PayloadCipher,
        announced: AnnouncedLanes,
        now: Callable[[], int],
    ) -> None:
        super().__init__(database, sealer, SqliteLines(), announced)
        self._now = now

    def forget(self, keep_ms: int) -> tuple[int, int]:
        before = self._now() - keep_ms
        with self._transaction() as connection:
            gone = connection.execute(LITE_FORGET, (before, _FORGET)).fetchall()
        return len(gone), sum(became is None for (became,) in gone)

    def _insert(self, rows: Sequence[StoredReceipt]) -> int:
        now = self._now()
        with self._transaction() as connection:
            stored = [(*row[:7], now, now) for row in rows]
            return int(connection.executemany(LITE_STORE, stored).rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with connected(self._database) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def _due(self, connection: Any, limit: int) -> tuple[list[StoredReceipt], int]:
        now = self._now()
        return [StoredReceipt(*row) for row in connection.execute(LITE_DUE, (now, limit))], now

    def _candidates(self, connection: Any, due: Sequence[StoredReceipt]) -> list[CandidateRow]:
        names = {"ids": _json(_ids(due)), "calls": _json(_calls(due))}
        return [CandidateRow(*row) for row in connection.execute(LITE_CANDIDATES, names)]

    def _move(self, connection: Any, rows: Sequence[ReceiptMove]) -> set[str]:
        now, moved = self._now(), set()
        for row in rows:
            values = (row.state, row.reason, row.provider_id, now, row.key, row.version)
            if connection.execute(LITE_MOVE, values).rowcount:
                moved.add(row.key)
        return moved

    def _close(self, connection: Any, rows: Sequence[Closing]) -> None:
        connection.executemany(LITE_CLOSE, [_closed(row, self._now()) for row in rows])


def open_receipts(
    ledger: SqlLedger, settings: Settings, now_ms: Callable[[], int] = wall_ms
) -> Receipts:
    """Returns the receipts in the database of an opened ledger; `now_ms` is SQLite's clock."""
    sealer = PayloadCipher(settings.database.payload_key)
    if ledger.database.is_postgres:
        return PostgresReceipts(ledger.database, sealer, ledger.announced)
    return SqliteReceipts(ledger.database, sealer, ledger.announced, now_ms)


def _closed(row: Closing, now: int) -> tuple[Any, ...]:
    next_at = None if row.wait_ms is None else now + row.wait_ms
    return row.applied, row.delivery_key, now if row.applied else None, next_at, *row[:5]


def _ids(due: Sequence[StoredReceipt]) -> list[str]:
    return sorted({receipt.provider_id for receipt in due if receipt.provider_id})


def _calls(due: Sequence[StoredReceipt]) -> list[str]:
    return sorted({receipt.call_key for receipt in due if receipt.call_key})


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()
