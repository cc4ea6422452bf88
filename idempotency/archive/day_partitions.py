"""Past days of partitioned tables on PostgreSQL move to the schema `archive`; for the ledger and others.

    detach    one transaction under the lock on the tables: nobody writes between the check and the move.
              It changes the catalogue alone, however many rows there are

A day may have no partition of its own (docs/ledger.md), in one of the tables or in all. Its rows leave the
default one in batches, each under its own lock.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final, NamedTuple

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from backends.sql.database import Database
from idempotency.archive.contract import SCHEMA, DayOpen, NotAllowed, date_of
from idempotency.error_mapping import errors
from idempotency.partitions import LOCK, partition_name
from idempotency.transactions import Clock, LedgerPart

log = structlog.get_logger(__name__)
BATCH: Final = 2_000
"""Rows moved in one transaction."""
LOCK_WAIT: Final = "2s"
"""Longest wait for the lock, since writers wait behind it; then archiving gives up until its next try."""
_MS_PER_DAY: Final = 86_400_000
_NO_RIGHT: Final = "42501"
_EPOCH: Final = date(1970, 1, 1)
_PARTITIONS: Final = """
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = '{table}'::regclass"""
_DAY: Final = r"{table}_(\d{{4}})(\d{{2}})(\d{{2}})"
_STRAYED: Final = "SELECT DISTINCT day FROM {table}_default WHERE day < :before"
_THERE = text("SELECT to_regclass(:name) IS NOT NULL")
# A row whose key left before, and that came again, has its first row in the archive already.
_MOVE: Final = """
WITH gone AS (
    DELETE FROM {table}_default WHERE ctid IN (
        SELECT ctid FROM {table}_default WHERE day = :day LIMIT :batch)
    RETURNING *),
kept AS (
    INSERT INTO archive.{target} SELECT * FROM gone ON CONFLICT DO NOTHING RETURNING 1)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM kept) AS kept"""


class DayTables(NamedTuple):
    """Tables whose days are archived together."""

    names: tuple[str, ...]
    """The first one has the states. The others are read beside it, and move after it."""
    open_rows: str
    """Query whether `{table}` has an open row of `:day`, by indexes."""


class DayPartitions(LedgerPart):
    """Moves days of some tables. Every method raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock, tables: DayTables) -> None:
        super().__init__(database, clock)
        self._tables = tables
        self._main = tables.names[0]

    def days(self, keep_days: int) -> list[int]:
        """See `Archive.days`; empty partitions count too, and so does a day that has left some of the
        tables alone."""
        with self._begin() as (connection, now):
            before = now // _MS_PER_DAY - keep_days
            found: set[int] = set()
            for table in self._tables.names:
                found |= {day for day in _partition_days(connection, table) if day < before}
                statement = text(_STRAYED.format(table=table))
                found.update(connection.execute(statement, {"before": before}).scalars())
            return sorted(found)

    def has_open(self, day: int) -> bool:
        """See `Archive.has_open`."""
        statement = text(self._tables.open_rows.format(table=self._main))
        with errors(), self._database.begin() as connection:
            return bool(connection.execute(statement, {"day": day}).scalar_one())

    def move(self, day: int) -> str:
        """Moves the day. Returns the name of its first table in the schema `archive`. Raises DayOpen,
        NotAllowed."""
        name = partition_name(self._main, day)
        if self._is_own(name):
            with errors():
                self._detach(day)
        else:
            self._move_strayed(day)
            self._detach_others(day)
        return name

    def _is_own(self, name: str) -> bool:
        with errors(), self._database.begin() as connection:
            statement = text(_PARTITIONS.format(table=self._main))
            return name in set(connection.execute(statement).scalars())

    def _detach(self, day: int, rows_in: str = "") -> None:
        """Moves the day's partitions, of those tables that have one. `rows_in` is the table whose rows must
        not be open; empty: the first table's partition."""
        try:
            with self._database.begin() as connection:
                _prepare(connection)
                run = connection.exec_driver_sql
                # The parents first: writers lock a parent before its partition.
                parents = ", ".join(f"ONLY {table}" for table in self._tables.names)
                run(f"LOCK TABLE {parents} IN ACCESS EXCLUSIVE MODE")
                self._refuse_open(connection, rows_in or partition_name(self._main, day), day)
                for table in self._tables.names:
                    _leave(connection, table, day)
        except ProgrammingError as exc:
            raise _judged(exc) from exc

    def _detach_others(self, day: int) -> None:
        """Moves what partitions there are of a day whose rows were in the default one: those of its
        payloads."""
        with errors():
            with self._database.begin() as connection:
                there = any(_is_there(connection, table, day) for table in self._tables.names)
            if there:
                self._detach(day, f"{self._main}_default")

    def _move_strayed(self, day: int) -> None:
        moved = 1
        try:
            while moved:
                with errors(), self._database.begin() as connection:
                    _prepare(connection)
                    moved = self._move_some(connection, day)
        except ProgrammingError as exc:
            raise _judged(exc) from exc

    def _move_some(self, connection: Connection, day: int) -> int:
        defaults = ", ".join(f"{table}_default" for table in self._tables.names)
        connection.exec_driver_sql(f"LOCK TABLE {defaults} IN SHARE ROW EXCLUSIVE MODE")
        self._refuse_open(connection, f"{self._main}_default", day)
        moved = 0
        for table in self._tables.names:
            if _is_there(connection, table, day):
                continue  # it leaves whole, after the rows
            target = partition_name(table, day)
            connection.exec_driver_sql(
                f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{target} (LIKE {table} INCLUDING ALL)"
            )
            # The other tables move after all rows of the first: until then queries join them to the rows
            # that are left.
            if not moved:
                moved += _move_rows(connection, table, target, day)
        return moved

    def _refuse_open(self, connection: Connection, table: str, day: int) -> None:
        statement = text(self._tables.open_rows.format(table=table))
        if connection.execute(statement, {"day": day}).scalar_one():
            raise DayOpen(f"{date_of(day)} has open rows: it stays until they have ended")


def _move_rows(connection: Connection, table: str, target: str, day: int) -> int:
    """Moves a batch of rows out of the default partition. Returns their number."""
    statement = text(_MOVE.format(table=table, target=target))
    found = connection.execute(statement, {"day": day, "batch": BATCH}).one()
    if found.kept < found.gone:
        known = found.gone - found.kept
        log.warning(
            "archive_has_rows_already", table=target, rows=known, what="the first ones stay"
        )
    return int(found.gone)


def _prepare(connection: Connection) -> None:
    """Takes the lock that making partitions takes, too. Makes the schema if it is missing."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    if not connection.execute(text(f"SELECT to_regnamespace('{SCHEMA}') IS NOT NULL")).scalar_one():
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")


def _partition_days(connection: Connection, table: str) -> list[int]:
    """Returns the days with a partition of their own."""
    named = re.compile(_DAY.format(table=table))
    names = connection.execute(text(_PARTITIONS.format(table=table))).scalars()
    found = [match for name in names if (match := named.fullmatch(name))]
    return [(date(*map(int, match.groups())) - _EPOCH).days for match in found]


def _is_there(connection: Connection, table: str, day: int) -> bool:
    """Returns whether the table has a partition for the day."""
    name = partition_name(table, day)
    return bool(connection.execute(_THERE, {"name": name}).scalar_one())


def _leave(connection: Connection, table: str, day: int) -> None:
    if _is_there(connection, table, day):
        name = partition_name(table, day)
        _drop_empty(connection, f"{SCHEMA}.{name}")
        connection.exec_driver_sql(f"ALTER TABLE {table} DETACH PARTITION {name}")
        connection.exec_driver_sql(f"ALTER TABLE {name} SET SCHEMA {SCHEMA}")


def _drop_empty(connection: Connection, target: str) -> None:
    """Makes room for a partition that an earlier version left behind, beside an empty table of its name."""
    if connection.execute(_THERE, {"name": target}).scalar_one():
        has_rows = text(f"SELECT EXISTS (SELECT FROM {target})")  # noqa: S608 - a name of ours
        if not connection.execute(has_rows).scalar_one():
            connection.exec_driver_sql(f"DROP TABLE {target}")


def _judged(exc: ProgrammingError) -> Exception:
    if getattr(exc.orig, "sqlstate", "") != _NO_RIGHT:
        return exc
    reason = str(exc.orig).partition("\n")[0]
    return NotAllowed(
        f"this role may not archive ({reason}): run `hongyan db archive` under the tables' owner, and set"
        " recovery.archive = false"
    )
