"""`idempotency.archive.contract` on PostgreSQL: the day's partitions move to the schema `archive`.

    detach    one transaction under the lock on `deliveries`: nobody writes between the check and the move.
              It changes the catalogue alone, however many rows there are
    names     the day's rows of `delivery_keys`, in batches; a comment on the moved table marks the end

A day may have no partition of its own (docs/ledger.md). Its rows leave the default one in batches, each
under its own lock.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from idempotency.archive.contract import (
    PARKED,
    SCHEMA,
    Archived,
    Day,
    DayOpen,
    NotAllowed,
    date_of,
    open_states,
)
from idempotency.error_mapping import errors
from idempotency.partitions import LOCK, TABLES, partition_name
from idempotency.transactions import LedgerPart

BATCH: Final = 2_000
"""Names removed in one transaction."""
LOCK_WAIT: Final = "2s"
"""Longest wait for the lock, since claims wait behind it; then archiving gives up until its next try."""
_MS_PER_DAY: Final = 86_400_000
_NO_RIGHT: Final = "42501"
_DONE: Final = "names removed"
_NAMED = re.compile(r"^deliveries_(\d{4})(\d{2})(\d{2})$")

_PARTITIONS = text("""
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'deliveries'::regclass""")
_STRAYED = text("SELECT DISTINCT day FROM deliveries_default WHERE day < :before")
_SURVEY = text("""
SELECT count(*) AS rows, count(*) FILTER (WHERE state = ANY (:open)) AS open,
       count(*) FILTER (WHERE state = :parked) AS parked
  FROM deliveries WHERE day = :day""")
# One index each: the partial ones that workers and recovery use.
_OPEN: Final = """
SELECT EXISTS (SELECT FROM {table} WHERE state = 'IN_FLIGHT' AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state = 'RETRY' AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state = 'UNKNOWN' AND day = :day)"""
_THERE = text("SELECT to_regclass(:name) IS NOT NULL")
_UNFINISHED = text("""
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r'
   AND c.relname LIKE 'deliveries\\_%'
   AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM :done
 ORDER BY c.relname""")
_NAMES: Final = """
SELECT count(*) AS rows, max(delivery_key) AS last
  FROM (SELECT delivery_key FROM archive.{table} WHERE delivery_key > :after
         ORDER BY delivery_key LIMIT :batch) AS next"""
# A name that came back since then belongs to a row of another day.
_REMOVE: Final = """
DELETE FROM delivery_keys AS k USING archive.{table} AS d
 WHERE d.delivery_key > :after AND d.delivery_key <= :last
   AND k.delivery_key = d.delivery_key AND k.day = d.day"""
_MOVE: Final = """
WITH gone AS (
    DELETE FROM {table}_default WHERE ctid IN (
        SELECT ctid FROM {table}_default WHERE day = :day LIMIT :batch)
    RETURNING *)
INSERT INTO archive.{target} SELECT * FROM gone"""


_PARKED: Final = "SELECT count(*) FROM archive.{table} WHERE state = :parked"


class PostgresArchive(LedgerPart):
    """Implements `idempotency.archive.contract.Archive`."""

    def days(self, keep_days: int) -> list[int]:
        """See `Archive.days`; empty partitions count too."""
        with self._begin() as (connection, now):
            before = now // _MS_PER_DAY - keep_days
            names = connection.execute(_PARTITIONS).scalars()
            own = {day for name in names if (day := _day_of(name)) is not None and day < before}
            strayed = connection.execute(_STRAYED, {"before": before}).scalars()
            return sorted(own | set(strayed))

    def survey(self, day: int) -> Day:
        asked = {"day": day, "open": list(open_states()), "parked": PARKED}
        with errors(), self._database.begin() as connection:
            row = connection.execute(_SURVEY, asked).one()
        return Day(day, row.rows, row.open, row.parked)

    def has_open(self, day: int) -> bool:
        statement = text(_OPEN.format(table="deliveries"))
        with errors(), self._database.begin() as connection:
            return bool(connection.execute(statement, {"day": day}).scalar_one())

    def archive(self, day: int) -> Archived:
        """See `Archive.archive`. Raises NotAllowed too."""
        name = partition_name("deliveries", day)
        if self._is_own(name):
            with errors():
                self._detach(day)
        else:
            self._move_strayed(day)
        rows = self._remove_names(name)
        return Archived(day, rows, f"{SCHEMA}.{name}", self._parked(name))

    def _parked(self, table: str) -> int:
        """Returns the moved table's parked rows, by the index that moved with it."""
        with errors(), self._database.begin() as connection:
            statement = text(_PARKED.format(table=table))
            return int(connection.execute(statement, {"parked": PARKED}).scalar_one())

    def finish(self) -> int:
        with errors(), self._database.begin() as connection:
            names = list(connection.execute(_UNFINISHED, {"done": _DONE}).scalars())
        return sum(self._remove_names(name) for name in names)

    def _is_own(self, name: str) -> bool:
        with errors(), self._database.begin() as connection:
            return name in set(connection.execute(_PARTITIONS).scalars())

    def _detach(self, day: int) -> None:
        try:
            with self._database.begin() as connection:
                _prepare(connection)
                run = connection.exec_driver_sql
                # The parents first: writers lock a parent before its partition.
                run("LOCK TABLE ONLY deliveries, ONLY payloads IN ACCESS EXCLUSIVE MODE")
                _refuse_open(connection, partition_name("deliveries", day), day)
                for table in TABLES:
                    _leave(connection, table, partition_name(table, day))
        except ProgrammingError as exc:
            raise _judged(exc) from exc

    def _move_strayed(self, day: int) -> None:
        moved = 1
        try:
            while moved:
                with errors(), self._database.begin() as connection:
                    _prepare(connection)
                    moved = _move_some(connection, day)
        except ProgrammingError as exc:
            raise _judged(exc) from exc

    def _remove_names(self, table: str) -> int:
        """Removes names in batches along the moved table's key. Returns how many rows it has."""
        rows, after = 0, ""
        while True:
            with errors(), self._database.begin() as connection:
                asked = {"after": after, "batch": BATCH}
                some = connection.execute(text(_NAMES.format(table=table)), asked).one()
                if not some.rows:
                    connection.exec_driver_sql(f"COMMENT ON TABLE {SCHEMA}.{table} IS '{_DONE}'")
                    return rows
                place = {"after": after, "last": some.last}
                connection.execute(text(_REMOVE.format(table=table)), place)
            rows, after = rows + some.rows, some.last


def _prepare(connection: Connection) -> None:
    """Takes the lock that making partitions takes, too. Makes the schema if it is missing."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    if not connection.execute(text(f"SELECT to_regnamespace('{SCHEMA}') IS NOT NULL")).scalar_one():
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")


def _refuse_open(connection: Connection, table: str, day: int) -> None:
    if connection.execute(text(_OPEN.format(table=table)), {"day": day}).scalar_one():
        raise DayOpen(f"{date_of(day)} has open rows: it stays until they have ended")


def _leave(connection: Connection, table: str, name: str) -> None:
    if connection.execute(_THERE, {"name": name}).scalar_one():
        connection.exec_driver_sql(f"ALTER TABLE {table} DETACH PARTITION {name}")
        connection.exec_driver_sql(f"ALTER TABLE {name} SET SCHEMA {SCHEMA}")


def _move_some(connection: Connection, day: int) -> int:
    connection.exec_driver_sql(
        "LOCK TABLE deliveries_default, payloads_default IN SHARE ROW EXCLUSIVE MODE"
    )
    _refuse_open(connection, "deliveries_default", day)
    moved = 0
    for table in TABLES:
        target = partition_name(table, day)
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{target} (LIKE {table} INCLUDING ALL)"
        )
        # Payloads move after all rows: until then queries join them to the rows that are left.
        if not moved:
            statement = text(_MOVE.format(table=table, target=target))
            moved += connection.execute(statement, {"day": day, "batch": BATCH}).rowcount
    return moved


def _day_of(name: str) -> int | None:
    found = _NAMED.match(name)
    if found is None:
        return None
    return (date(*map(int, found.groups())) - date(1970, 1, 1)).days


def _judged(exc: ProgrammingError) -> Exception:
    if getattr(exc.orig, "sqlstate", "") != _NO_RIGHT:
        return exc
    reason = str(exc.orig).partition("\n")[0]
    return NotAllowed(
        f"this role may not archive ({reason}): run `hongyan db archive` under the tables' owner, and set"
        " recovery.archive = false"
    )
