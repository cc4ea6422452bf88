"""Day partitions on PostgreSQL, made ahead of time.

A partition is made beside the table and then attached, because that lets claims go on meanwhile. Rows in
the default partition stay there: their day then has no partition of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from backends.sql.database import Database

DAYS_AHEAD: Final = 7
TABLES: Final = ("deliveries", "payloads")
"""The ledger's tables with partitions."""
LOOKBACK_TABLES: Final = ("lookback_transactions",)
"""Partitioned tables of transactional messages."""
LOCK: Final = 0x686F6E67796170
"""Advisory lock for making and archiving partitions."""
_FILL: Final = 85
"""Per cent: the update with the outcome then fits on the row's first page."""
_log = structlog.get_logger(__name__)
_EPOCH = date(1970, 1, 1)


def partition_name(table: str, day: int) -> str:
    """Returns the partition's name: `deliveries_20261121`."""
    return f"{table}_{_EPOCH + timedelta(days=day):%Y%m%d}"


def ensure_partitions(
    database: Database, days_ahead: int = DAYS_AHEAD, tables: Sequence[str] = TABLES
) -> list[str]:
    """Makes the missing partitions of `tables` from today on. Returns their names; none on SQLite.

    Logs a warning for a role that may not make tables: rows go to the default partition then.
    """
    if not database.is_postgres:
        return []
    try:
        with database.begin() as connection:
            return _ensure(connection, days_ahead, tables)
    except ProgrammingError as exc:
        _log.warning("ledger.partitions_not_made", error=str(exc.orig).partition("\n")[0])
        return []


def _ensure(connection: Connection, days_ahead: int, tables: Sequence[str]) -> list[str]:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    today = connection.execute(text("SELECT hongyan_now() / 86400000")).scalar_one()
    days = range(today, today + days_ahead + 1)
    return [
        name
        for day in days
        for table in tables
        if (name := partition_name(table, day)) and _make(connection, table, name, day)
    ]


def _make(connection: Connection, table: str, name: str, day: int) -> bool:
    there = text("SELECT to_regclass(:name) IS NOT NULL")
    strayed = text(f"SELECT EXISTS (SELECT FROM {table}_default WHERE day = :day)")  # noqa: S608
    if connection.execute(there, {"name": name}).scalar_one():
        return False
    if connection.execute(strayed, {"day": day}).scalar_one():
        _log.warning("ledger.day_in_default_partition", table=table, day=day)
        return False
    run = connection.exec_driver_sql
    run(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL) WITH (fillfactor = {_FILL})")
    run(f"ALTER TABLE {name} ADD CONSTRAINT its_day CHECK (day = {day})")
    run(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({day})")
    run(f"ALTER TABLE {name} DROP CONSTRAINT its_day")
    return True
