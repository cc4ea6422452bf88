"""Day partitions on PostgreSQL, made ahead of time.

A partition is made beside the table and then attached, because that lets claims go on meanwhile. Rows in
the default partition stay there: their day then has no partition of its own.

Attaching locks the default partition. It waits for every reader, a backup's as well, and settlements wait
behind it. So it gives up soon, as long as the next days have their partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from backends.sql.database import Database
from backends.sql.errors import SqlTimeout

DAYS_AHEAD: Final = 7
TABLES: Final = ("deliveries", "payloads")
"""The ledger's tables with partitions."""
LOOKBACK_TABLES: Final = ("lookback_transactions",)
"""Partitioned tables of transactional messages."""
LOCK: Final = 0x686F6E67796170
"""Advisory lock for making and archiving partitions."""
_FILL: Final = 85
"""Per cent: the update with the outcome then fits on the row's first page."""
_SOON: Final = 2
"""Days from today on whose partitions must not wait for a later try."""
_LOCK_WAIT: Final = "200ms"
"""Longest wait for a lock to make the partitions of later days. Settlements wait as long."""
_log = structlog.get_logger(__name__)
_EPOCH = date(1970, 1, 1)
_THERE: Final = text("""
SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NOT NULL""")


class _Wanted(NamedTuple):
    """A partition that there must be."""

    table: str
    name: str
    day: int
    ahead: int
    """Days from today to its day."""


def partition_name(table: str, day: int) -> str:
    """Returns the partition's name: `deliveries_20261121`."""
    return f"{table}_{_EPOCH + timedelta(days=day):%Y%m%d}"


def ensure_partitions(
    database: Database, days_ahead: int = DAYS_AHEAD, tables: Sequence[str] = TABLES
) -> list[str]:
    """Makes the missing partitions of `tables` from today on. Returns their names; none on SQLite.

    Logs a warning for a role that may not make tables: rows go to the default partition then. Logs one if
    a lock was not free and today and tomorrow have their partitions: a later call makes the others. Raises
    SqlError.
    """
    if not database.is_postgres:
        return []
    urgent = True
    try:
        # A transaction of its own: its locks on the tables must not outlive it. Another process may hold
        # the advisory lock and wait for them.
        with database.begin() as connection:
            missing = _missing(connection, days_ahead, tables)
            urgent = any(one.ahead < _SOON and not _strayed(connection, one) for one in missing)
        if not missing:
            return []
        with database.begin() as connection:
            return _make_all(connection, missing, urgent=urgent)
    except ProgrammingError as exc:
        _log.warning("ledger.partitions_not_made", error=str(exc.orig).partition("\n")[0])
        return []
    except SqlTimeout as exc:
        if urgent:
            raise
        _log.warning("ledger.partitions_wait", error=str(exc))
        return []


def _missing(connection: Connection, days_ahead: int, tables: Sequence[str]) -> list[_Wanted]:
    """Returns the partitions that are not there, the next day's first."""
    today = connection.execute(text("SELECT hongyan_now() / 86400000")).scalar_one()
    wanted = [
        _Wanted(table, partition_name(table, today + ahead), today + ahead, ahead)
        for ahead in range(days_ahead + 1)
        for table in tables
    ]
    there = connection.execute(_THERE, {"names": [one.name for one in wanted]}).scalars().all()
    return [one for one in wanted if one.name not in there]


def _make_all(connection: Connection, missing: Sequence[_Wanted], *, urgent: bool) -> list[str]:
    if not urgent:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    return [one.name for one in missing if _make(connection, one)]


def _make(connection: Connection, one: _Wanted) -> bool:
    if connection.execute(_THERE, {"names": [one.name]}).first():
        return False
    if _strayed(connection, one):
        _log.warning("ledger.day_in_default_partition", table=one.table, day=one.day)
        return False
    run, table, name, day = connection.exec_driver_sql, one.table, one.name, one.day
    run(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL) WITH (fillfactor = {_FILL})")
    run(f"ALTER TABLE {name} ADD CONSTRAINT its_day CHECK (day = {day})")
    run(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({day})")
    run(f"ALTER TABLE {name} DROP CONSTRAINT its_day")
    return True


def _strayed(connection: Connection, one: _Wanted) -> bool:
    """Returns whether the default partition has rows of the day."""
    found = text(f"SELECT EXISTS (SELECT FROM {one.table}_default WHERE day = :day)")  # noqa: S608
    return bool(connection.execute(found, {"day": one.day}).scalar_one())
