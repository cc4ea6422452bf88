"""The archive that fits a ledger."""

from __future__ import annotations

from pathlib import Path

from backends.sql.database import Database
from idempotency.archive.contract import Archive
from idempotency.archive.postgres import PostgresArchive
from idempotency.archive.sqlite import SqliteArchive
from idempotency.fleet.worker_leases import Clock


def archive_of(database: Database, clock: Clock, folder: Path) -> Archive:
    """Returns the archive on the database's connections; `folder` is for SQLite's files."""
    if database.is_postgres:
        return PostgresArchive(database, clock)
    return SqliteArchive(database, clock, folder)
