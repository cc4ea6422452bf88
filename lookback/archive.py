"""Archive of past days: only those of which every transaction has ended.

PostgreSQL   the day's partition moves to the schema `archive`
SQLite       the day's rows go to a file of compressed JSON lines, batch by batch
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import text

from backends.settings import Settings
from backends.sql.database import Database
from idempotency.archive.contract import (
    SCHEMA,
    Archived,
    DayOpen,
    compact,
    date_of,
    folder_of,
)
from idempotency.archive.day_partitions import DayPartitions, DayTables
from idempotency.archive.row_files import RowFile
from idempotency.error_mapping import errors
from idempotency.partitions import LOOKBACK_TABLES
from idempotency.sql_ledger import SqlLedger
from idempotency.transactions import Clock, LedgerPart
from lookback.states import OPEN_STATES

BATCH: Final = 500
"""Rows that leave SQLite in one transaction."""
KIND: Final = "lookback"
"""Of the lines in SQLite's files, and the beginning of their names."""
_MS_PER_DAY: Final = 86_400_000
_STATES: Final = ", ".join(f"'{state.value}'" for state in sorted(OPEN_STATES))
_OPEN: Final = f"SELECT EXISTS (SELECT 1 FROM {{table}} WHERE day = :day AND state IN ({_STATES}))"  # noqa: S608
# One partial index each, of those that the loops use: the query above reads the whole day.
_OPEN_BY_INDEX: Final = """
SELECT EXISTS (SELECT FROM {table} WHERE state IN ('PREPARED', 'CHECKING') AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state IN ('EARLY_COMMIT', 'EARLY_ROLLBACK') AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state = 'COMMITTED' AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state = 'UNRESOLVED' AND day = :day)"""
_ROWS = text(
    "SELECT rowid AS place, * FROM lookback_transactions"
    " WHERE day = :day AND rowid > :after ORDER BY rowid LIMIT :batch"
)
_GONE = text("DELETE FROM lookback_transactions WHERE rowid = :place AND version = :version")
_DAYS = text("SELECT DISTINCT day FROM lookback_transactions WHERE day < :before ORDER BY day")
_TABLES: Final = DayTables(LOOKBACK_TABLES, _OPEN_BY_INDEX)


class TransactionArchive(Protocol):
    """Every method raises LedgerError alone."""

    def days(self, keep_days: int) -> list[int]:
        """Returns the days that are older than `keep_days` whole days, oldest first."""
        ...

    def archive(self, day: int) -> Archived:
        """Archives the day. Raises DayOpen: then nothing more of it leaves."""
        ...


class PostgresTransactions(DayPartitions):
    """Implements `TransactionArchive`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock, _TABLES)

    def archive(self, day: int) -> Archived:
        """See `TransactionArchive.archive`. Raises NotAllowed too."""
        name = self.move(day)
        with errors(), self._database.begin() as connection:
            counted = text(f"SELECT count(*) FROM {SCHEMA}.{name}")  # noqa: S608
            rows = int(connection.execute(counted).scalar_one())
        return Archived(day, rows, f"{SCHEMA}.{name}")


class SqliteTransactions(LedgerPart):
    """Implements `TransactionArchive`; `folder` is made with its first file."""

    def __init__(self, database: Database, clock: Clock, folder: Path) -> None:
        super().__init__(database, clock)
        self._folder = folder

    def days(self, keep_days: int) -> list[int]:
        """See `TransactionArchive.days`."""
        with self._begin() as (connection, now):
            before = {"before": now // _MS_PER_DAY - keep_days}
            return list(connection.execute(_DAYS, before).scalars())

    def archive(self, day: int) -> Archived:
        """See `TransactionArchive.archive`."""
        file = RowFile(self._folder / f"{KIND}-{compact(day)}.jsonl.gz")
        rows, place = 0, 0
        while True:
            with errors(), self._database.begin() as connection:
                statement = text(_OPEN.format(table=LOOKBACK_TABLES[0]))
                if connection.execute(statement, {"day": day}).scalar_one():
                    raise DayOpen(f"{date_of(day)} has open transactions: it stays")
                asked = {"day": day, "after": place, "batch": BATCH}
                found = connection.execute(_ROWS, asked).mappings().all()
                file.append(KIND, found)
                for row in found:
                    connection.execute(_GONE, {"place": row["place"], "version": row["version"]})
            if not found:
                return Archived(day, rows, str(file.path))
            rows, place = rows + len(found), found[-1]["place"]


def open_archive(ledger: SqlLedger, settings: Settings) -> TransactionArchive:
    """Returns the archive of this database."""
    database = ledger.database
    if database.is_postgres:
        return PostgresTransactions(database, ledger.clock)
    folder = folder_of(database.url.database, settings.lookback.archive_dir, settings.base)
    return SqliteTransactions(database, ledger.clock, folder)
