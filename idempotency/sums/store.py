"""The table of minute sums: one statement writes what changed in a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import TextClause, text

from backends.sql.database import Database
from idempotency.sums.counter import SumRow
from idempotency.transactions import Clock, LedgerPart

COLUMNS: Final = SumRow._fields
_BIG: Final = ("minute", "deliveries")
_KEY: Final = ("minute", "lane", "account", "outcome")


class SumStore(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._put = text(
            f"""
INSERT INTO minute_sums ({", ".join(COLUMNS)}, process, written_at)
SELECT {", ".join(COLUMNS)}, CAST(:process AS TEXT), CAST(:now AS BIGINT)
  FROM {rows_of(database.is_postgres)} AS r WHERE true
ON CONFLICT ({", ".join(_KEY)}, process) DO UPDATE
   SET {replaced()}, written_at = excluded.written_at
 WHERE minute_sums.deliveries <= excluded.deliveries"""  # noqa: S608 - ours
        )

    def put(self, process: str, rows: Sequence[SumRow]) -> None:
        """Replaces the process's sums of these minutes. A repeat changes nothing."""
        if not rows:
            return
        with self._begin() as (connection, now):
            connection.execute(self._put, {"rows": as_json(rows), "process": process, "now": now})


def as_json(rows: Sequence[SumRow]) -> str:
    """Returns the rows as the statements take them."""
    return msgspec.json.encode([row._asdict() for row in sorted(rows)]).decode()


def rows_of(is_postgres: bool) -> str:
    """Returns the SQL that reads `:rows` as a table with the columns of SumRow."""
    if is_postgres:
        typed = ", ".join(f"{one} {'bigint' if one in _BIG else 'text'}" for one in COLUMNS)
        return f"(SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS s ({typed}))"  # noqa: S608 - ours
    read = ", ".join(f"json_extract(value, '$.{one}') AS {one}" for one in COLUMNS)
    return f"(SELECT {read} FROM json_each(:rows))"  # noqa: S608 - ours


def replaced() -> str:
    """Returns the assignments that replace a row's sums by those of `excluded`."""
    return ", ".join(f"{one} = excluded.{one}" for one in COLUMNS if one not in _KEY)


def upsert_spans(is_postgres: bool) -> TextClause:
    """Returns the statement that replaces the rows of one span."""
    return text(f"""
INSERT INTO span_sums (span, {", ".join(COLUMNS)})
SELECT CAST(:span AS BIGINT), {", ".join(COLUMNS)} FROM {rows_of(is_postgres)} AS r WHERE true
ON CONFLICT (span, {", ".join(_KEY)}) DO UPDATE SET {replaced()}""")  # noqa: S608 - ours
