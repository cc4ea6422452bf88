"""`idempotency.archive.contract` on SQLite: the day's rows go to a file, then out of the table.

Each batch is one transaction: read, written to the file and on disk, deleted. A crash in between leaves
rows that are in the file already; they go there once more, the same to the byte.

Shared payloads leave after all rows of their day. The day has left once none of either is in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.archive.contract import (
    PARKED,
    Archived,
    Day,
    DayOpen,
    compact,
    date_of,
    open_states,
)
from idempotency.archive.row_files import RowFile
from idempotency.error_mapping import connected, errors
from idempotency.transactions import Clock, LedgerPart

BATCH: Final = 500
"""Rows that leave in one transaction."""
_MS_PER_DAY: Final = 86_400_000

# Rows are in the order in which they came, so the first one's day is the oldest.
_OLDEST = text("SELECT day FROM deliveries ORDER BY rowid LIMIT 1")
_DAYS = text("SELECT DISTINCT day FROM deliveries WHERE day < :before ORDER BY day")
_PAYLOAD_DAYS: Final = "SELECT DISTINCT day FROM payloads WHERE day < ?"
_STATES = ", ".join(f"'{state}'" for state in open_states())
_SURVEY = text(f"""
SELECT count(*) AS rows, coalesce(sum(state IN ({_STATES})), 0) AS open,
       coalesce(sum(state = :parked), 0) AS parked
  FROM deliveries WHERE day = :day""")  # noqa: S608 - states of ours
_OPEN = text("""
SELECT EXISTS (SELECT 1 FROM deliveries WHERE state = 'IN_FLIGHT' AND day = :day)
    OR EXISTS (SELECT 1 FROM deliveries WHERE state = 'RETRY' AND day = :day)
    OR EXISTS (SELECT 1 FROM deliveries WHERE state = 'UNKNOWN' AND day = :day)""")
_ROWS = text(
    "SELECT rowid AS place, * FROM deliveries"
    " WHERE day = :day AND rowid > :after ORDER BY rowid LIMIT :batch"
)
_GONE = text("DELETE FROM deliveries WHERE rowid = :place AND version = :version")
_PAYLOADS = text("SELECT * FROM payloads WHERE day = :day LIMIT :batch")
_PAYLOAD_GONE = text(
    "DELETE FROM payloads WHERE message_id = :message_id AND body_digest = :body_digest AND day = :day"
)


class SqliteArchive(LedgerPart):
    """Implements `idempotency.archive.contract.Archive`; `folder` is made with its first file."""

    def __init__(self, database: Database, clock: Clock, folder: Path) -> None:
        super().__init__(database, clock)
        self._folder = folder

    def days(self, keep_days: int) -> list[int]:
        with self._begin() as (connection, now):
            before = now // _MS_PER_DAY - keep_days
            oldest = connection.execute(_OLDEST).scalar_one_or_none()
            found: set[int] = set()
            if oldest is not None and oldest < before:
                found.update(connection.execute(_DAYS, {"before": before}).scalars())
        return sorted(found | self._payload_days(before))

    def survey(self, day: int) -> Day:
        with errors(), self._database.begin() as connection:
            row = connection.execute(_SURVEY, {"day": day, "parked": PARKED}).one()
        return Day(day, row.rows, row.open, row.parked)

    def has_open(self, day: int) -> bool:
        with errors(), self._database.begin() as connection:
            return bool(connection.execute(_OPEN, {"day": day}).scalar_one())

    def archive(self, day: int) -> Archived:
        file, rows, place, parked = RowFile(self.file_of(day)), 0, 0, 0
        while True:
            with errors(), self._database.begin() as connection:
                _refuse_open(connection, day)
                asked = {"day": day, "after": place, "batch": BATCH}
                found = connection.execute(_ROWS, asked).mappings().all()
                file.append("delivery", found)
                for row in found:
                    connection.execute(_GONE, {"place": row["place"], "version": row["version"]})
            if not found:
                break
            rows, place = rows + len(found), found[-1]["place"]
            parked += sum(row["state"] == PARKED for row in found)
        self._payloads(file, day)
        return Archived(day, rows, str(file.path), parked)

    def finish(self) -> int:
        """Returns 0: `days` names a day until its rows and its payloads have left."""
        return 0

    def file_of(self, day: int) -> Path:
        """Returns the day's file."""
        return self._folder / f"deliveries-{compact(day)}.jsonl.gz"

    def _payload_days(self, before: int) -> set[int]:
        """Returns the days of shared payloads before this one. The table has no index of days: all of it is
        read, in no transaction of ours, which would keep writers out."""
        with connected(self._database) as connection:
            return {day for (day,) in connection.execute(_PAYLOAD_DAYS, (before,))}

    def _payloads(self, file: RowFile, day: int) -> None:
        found: Sequence[Any] = (None,)
        while found:
            with errors(), self._database.begin() as connection:
                _refuse_open(connection, day)
                found = connection.execute(_PAYLOADS, {"day": day, "batch": BATCH}).mappings().all()
                file.append("payload", found)
                for row in found:
                    connection.execute(_PAYLOAD_GONE, dict(row))


def _refuse_open(connection: Connection, day: int) -> None:
    if connection.execute(_OPEN, {"day": day}).scalar_one():
        raise DayOpen(
            f"{date_of(day)} has open rows: what is left of it stays until they have ended"
        )
