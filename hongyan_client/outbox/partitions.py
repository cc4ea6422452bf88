"""Day partitions of the outbox on PostgreSQL: made ahead, dropped once every row in them has ended.

A row whose day has no partition goes to the default partition, so an insert never fails for a missing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from hongyan_client.outbox.clock import POSTGRESQL

AHEAD_DAYS: Final = 3
"""Days after today that have a partition."""
_LOCK_WAIT: Final = "SET LOCAL lock_timeout = '1s'"
"""Longest wait for a lock that would hold up the business's inserts."""
_NAME: Final = re.compile(r"_d(\d{8})\Z")
_PARTITIONS: Final = text("""
SELECT c.relname FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = CAST(:parent AS regclass) ORDER BY c.relname""")


_OWNED: Final = text("""
SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class
 WHERE oid = CAST(:parent AS regclass)
    OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:parent AS regclass))""")


class DayPartition(NamedTuple):
    """One partition and its day."""

    name: str
    day: date


def first_partitions(table: Table, connection: Connection, **_options: Any) -> None:
    """Makes the default partition and the first days; SQLAlchemy's `after_create`."""
    if connection.dialect.name != POSTGRESQL:
        return
    for statement in partition_statements(table.name, datetime.now(UTC).date()):
        connection.execute(text(statement))


def partition_statements(name: str, today: date) -> Iterator[str]:
    """Yields the statements that make the default partition and the first days."""
    yield f'CREATE TABLE IF NOT EXISTS "{name}_default" PARTITION OF "{name}" DEFAULT'
    for ahead in range(AHEAD_DAYS + 1):
        yield day_statement(name, today + timedelta(days=ahead))


def day_statement(name: str, day: date) -> str:
    """Returns the statement that makes one day's partition."""
    return (
        f'CREATE TABLE IF NOT EXISTS "{name}_d{day:%Y%m%d}" PARTITION OF "{name}"'
        f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
    )


def partitions_of(connection: Connection, name: str) -> list[DayPartition]:
    """Returns the day partitions, the oldest first."""
    found = []
    for partition in connection.execute(_PARTITIONS, {"parent": f'"{name}"'}).scalars():
        if match := _NAME.search(partition):
            day = datetime.strptime(match.group(1), "%Y%m%d").replace(tzinfo=UTC).date()
            found.append(DayPartition(partition, day))
    return found


def owns_partitions(connection: Connection, name: str) -> bool:
    """Whether the database's user owns the table and its partitions, and so may make and drop days."""
    return bool(connection.execute(_OWNED, {"parent": f'"{name}"'}).scalar())


def make_ahead(connection: Connection, name: str, today: date) -> list[str]:
    """Makes the missing days, each in a savepoint. Returns the errors: rows of such a day lie in the
    default partition and go out as any others."""
    there = {one.day for one in partitions_of(connection, name)}
    days = [today + timedelta(days=n) for n in range(AHEAD_DAYS + 1)]
    errors = []
    for day in (day for day in days if day not in there):
        try:
            with connection.begin_nested():
                connection.execute(text(_LOCK_WAIT))
                connection.execute(text(day_statement(name, day)))
        except DBAPIError as exc:
            errors.append(f"{day}: {str(exc.orig).partition(chr(10))[0]}")
    return errors


def drop_ended(connection: Connection, partition: DayPartition) -> bool:
    """Drops the partition if each of its rows has ended. Returns whether it did. Raises DBAPIError if the
    lock is not to be had."""
    connection.execute(text(_LOCK_WAIT))
    connection.execute(text(f'LOCK TABLE "{partition.name}" IN ACCESS EXCLUSIVE MODE'))
    unended = (
        f'SELECT 1 FROM "{partition.name}"'  # noqa: S608 - a name from the catalogue
        " WHERE state NOT IN ('SENT', 'RECALLED') LIMIT 1"
    )
    if connection.execute(text(unended)).first() is not None:
        return False
    connection.execute(text(f'DROP TABLE "{partition.name}"'))
    return True
