"""Day partitions of the outbox on PostgreSQL: made ahead, dropped once every row in them has ended.

A row whose day has no partition goes to the default partition, so an insert never fails for a missing one.

Statements of the business and of relays lock the parent before a partition. A drop takes its locks in the
same order. The other way round each waits for the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Table, TextClause, text
from sqlalchemy.exc import DBAPIError

from hongyan_client.outbox.clock import NOW_MS, POSTGRESQL

AHEAD_DAYS: Final = 3
"""Days after today that have a partition."""
_LOCK_WAIT: Final = "SET LOCAL lock_timeout = '1s'"
"""Longest wait for a lock that would hold up the business's inserts."""
_SHORT_WAIT: Final = text(
    "SELECT set_config('lock_timeout', '300ms', true), set_config('statement_timeout', '2s', true)"
)
"""For changes of past days: they can wait for the next look, and the business waits for them."""
_LOCK_REFUSED: Final = "55P03"
_NAME: Final = re.compile(r"_d(\d{8})\Z")
_PARTITIONS: Final = text("""
SELECT c.relname FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = CAST(:parent AS regclass) ORDER BY c.relname""")
_ONE: Final = text("SELECT pg_try_advisory_xact_lock(hashtext(:name))")
_OWNED: Final = text("""
SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class
 WHERE oid = CAST(:parent AS regclass)
    OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:parent AS regclass))""")


PAGE_ROWS: Final = 5_000
"""Rows of a past day that are read at once."""
_NOW: Final = NOW_MS[POSTGRESQL]
_WAITS: Final = f"state = 'PENDING' AND next_at > {_NOW}"
_PAGE: Final = """
WITH page AS MATERIALIZED (
    SELECT id, state, done_at FROM "{t}" WHERE id > :after ORDER BY id LIMIT :limit){gone}
SELECT count(*), COALESCE(max(id), 0), COALESCE(max(done_at), 0), {now} FROM page"""
_GONE: Final = """,
gone AS (
    DELETE FROM "{t}" r USING page
     WHERE r.id = page.id AND page.state IN ('SENT', 'RECALLED') AND page.done_at < {now} - :keep_ms)"""


class DayPartition(NamedTuple):
    """One partition and its day."""

    name: str
    day: date


class EndedPage(NamedTuple):
    """Some rows of a past day."""

    rows: int
    last_id: int
    newest_end: int
    """The latest `done_at` among them; 0: none."""
    now: int
    """The database's time."""


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
    """Returns the day partitions, the oldest first. A person's partition whose name has no day is none."""
    names = connection.execute(_PARTITIONS, {"parent": f'"{name}"'}).scalars()
    return [DayPartition(one, day) for one in names if (day := _day_of(one)) is not None]


def owns_partitions(connection: Connection, name: str) -> bool:
    """Whether the database's user owns the table and its partitions, and so may make and drop days."""
    return bool(connection.execute(_OWNED, {"parent": f'"{name}"'}).scalar())


def is_alone(connection: Connection, name: str) -> bool:
    """Returns whether this transaction alone changes the table's partitions, until its end."""
    return bool(connection.execute(_ONE, {"name": name}).scalar())


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


def open_row_in(partition: DayPartition) -> TextClause:
    """Returns the question for a row that has not ended. Two partial indexes answer it: no ended row is
    read."""
    table = f'"{partition.name}"'
    return text(
        f"SELECT 1 FROM {table} WHERE next_at IS NOT NULL"  # noqa: S608 - a name from the catalogue
        f" UNION ALL SELECT 1 FROM {table} WHERE state = 'PARKED' LIMIT 1"
    )


def has_open_row(connection: Connection, partition: DayPartition) -> bool:
    """Returns whether a row has not ended."""
    return connection.execute(open_row_in(partition)).first() is not None


def lock_for_drop(connection: Connection, name: str, partition: DayPartition) -> bool:
    """Locks the table and the partition until the transaction's end. Returns False if a lock was not free.
    Everybody waits for the table meanwhile, so ask `has_open_row` in another transaction before."""
    parent = f'LOCK TABLE ONLY "{name}" IN ACCESS EXCLUSIVE MODE'
    day = f'LOCK TABLE "{partition.name}" IN ACCESS EXCLUSIVE MODE NOWAIT'
    return _locked(connection, parent, day)


def drop_day(connection: Connection, partition: DayPartition) -> None:
    """Drops the partition with its rows, after `lock_for_drop`. Raises DBAPIError if the default partition,
    which PostgreSQL locks as well, is not free."""
    connection.execute(text(f'DROP TABLE "{partition.name}"'))


def movable_rows(connection: Connection, partition: DayPartition, limit: int) -> list[int]:
    """Returns ids of rows that nobody publishes soon: delayed ones, those in a back-off or behind the head
    of their key, and parked ones."""
    table = f'"{partition.name}"'
    found = text(
        f"(SELECT id FROM {table} WHERE {_WAITS} ORDER BY next_at LIMIT :limit)"  # noqa: S608 - a name
        f" UNION ALL (SELECT id FROM {table} WHERE state = 'PARKED' ORDER BY id LIMIT :limit) LIMIT :limit"
    )
    return list(connection.execute(found, {"limit": limit}).scalars())


def lock_for_move(connection: Connection, name: str) -> bool:
    """Keeps writers from the table until the transaction's end. Returns False if the lock was not free.
    Without it a recall or a claim that meets a moved row fails, since PostgreSQL cannot follow it."""
    return _locked(connection, f'LOCK TABLE ONLY "{name}" IN EXCLUSIVE MODE')


def move_to_day(
    connection: Connection, name: str, partition: DayPartition, today: date, ids: Sequence[int]
) -> int:
    """Moves the rows that still wait to today's partition, after `lock_for_move`; their ids stay. Returns
    their number."""
    moved = text(
        f'UPDATE "{name}" SET created_day = :today WHERE id = ANY(:ids) AND created_day = :day'  # noqa: S608
        f" AND (state = 'PARKED' OR {_WAITS})"
    )
    asked = {"today": today, "day": partition.day, "ids": list(ids)}
    return connection.execute(moved, asked).rowcount


def ended_page(
    connection: Connection, partition: DayPartition, after: int, keep_ms: int, *, delete: bool
) -> EndedPage:
    """Reads the next rows by id, and deletes those that ended more than `keep_ms` ago if `delete`."""
    asked = {"after": after, "limit": PAGE_ROWS}
    gone = ""
    if delete:
        asked["keep_ms"] = keep_ms
        gone = _GONE.format(t=partition.name, now=_NOW)
    page = text(_PAGE.format(t=partition.name, now=_NOW, gone=gone))
    return EndedPage(*connection.execute(page, asked).one())


def _locked(connection: Connection, *locks: str) -> bool:
    """Returns whether the locks were free in time."""
    connection.execute(_SHORT_WAIT)
    try:
        with connection.begin_nested():
            for lock in locks:
                connection.execute(text(lock))
    except DBAPIError as exc:
        if getattr(exc.orig, "sqlstate", None) != _LOCK_REFUSED:
            raise
        return False
    return True


def _day_of(partition: str) -> date | None:
    match = _NAME.search(partition)
    try:
        return (
            datetime.strptime(match.group(1), "%Y%m%d").replace(tzinfo=UTC).date()
            if match
            else None
        )
    except ValueError:
        return None
