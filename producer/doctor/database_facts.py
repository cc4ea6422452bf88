"""Reads the settings of the ledger's database that decide what a crash may take. It changes nothing."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Final

from backends.settings import Settings
from backends.sql import schema
from backends.sql.database import Database, database_url
from backends.sql.errors import SqlError
from producer.doctor.facts import ClockFacts, DatabaseFacts

_NAMES: Final = ("synchronous_commit", "fsync", "full_page_writes", "synchronous_standby_names")
# `reset_val`: the value of other sessions. Ours switch synchronous_commit on where it is off.
_SETTINGS: Final = "SELECT name, reset_val, source FROM pg_settings WHERE name = ANY(%s)"
_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class DatabaseUnread(Exception):
    """The database could not be read; one sentence says why, without a password."""


def read_database(settings: Settings) -> tuple[DatabaseFacts, list[ClockFacts]]:
    """Returns the database's settings and its clock. Raises DatabaseUnread; makes no SQLite file."""
    try:
        url = database_url(settings.database.url, settings.base)
    except ValueError as exc:
        raise DatabaseUnread(f"database.url: {exc}") from exc
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise DatabaseUnread(f"there is no ledger at {url.database}; run `hongyan db upgrade`")
    with closing(Database(url, pool_size=1)) as database:
        try:
            return _read(database)
        except SqlError as exc:
            raise DatabaseUnread(f"the database did not answer ({exc})") from exc


def _read(database: Database) -> tuple[DatabaseFacts, list[ClockFacts]]:
    found = schema.current(database)
    runs = schema.runs_on(found, schema.oldest_program(database) if found else "")
    if not database.is_postgres:
        return _sqlite(database, found, runs), []
    with database.connection() as connection:
        rows = connection.execute(_SETTINGS, [list(_NAMES)]).fetchall()
        version = str(connection.execute("SHOW server_version").fetchone()[0])
        before_ms = time.time_ns() // 1_000_000
        now_ms = int(connection.execute(_NOW).fetchone()[0])
        after_ms = time.time_ns() // 1_000_000
    facts = DatabaseFacts(
        kind="postgresql",
        version=version,
        settings={name: value or "" for name, value, _ in rows},
        sources={name: f"pg_settings, {source}" for name, _, source in rows},
        schema=found,
        program_schema=schema.head(),
        runs=runs,
        now_ms=now_ms,
    )
    return facts, [clock("database", now_ms, before_ms, after_ms)]


def _sqlite(database: Database, found: str, runs: bool) -> DatabaseFacts:
    with database.connection() as connection:
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        version = connection.execute("SELECT sqlite_version()").fetchone()[0]
    return DatabaseFacts(
        kind="sqlite",
        version=str(version),
        settings={"synchronous": str(synchronous), "journal_mode": str(journal)},
        sources={"synchronous": "PRAGMA of our connections"},
        schema=found,
        program_schema=schema.head(),
        runs=runs,
    )


def clock(name: str, its_ms: int, before_ms: int, after_ms: int) -> ClockFacts:
    """Returns another clock against this host's, which was read before and after it."""
    middle, half = (before_ms + after_ms) // 2, (after_ms - before_ms + 1) // 2
    return ClockFacts(name, its_ms - middle, half)
