"""Indexes of the ledger that are made while claims go on (decision 181).

A migration only names them. `build` makes what is missing, outside of any transaction: the parent's index
without its partitions, then each partition's index CONCURRENTLY, then its attachment. The catalogue is the
record of what is done: a build that was killed goes on where it was. Later partitions get the parent's
indexes when they are made. Days in the schema `archive` get them, too.

SQLite has one writer: there the migration makes plain indexes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from sqlalchemy.engine import URL

from backends.sql.database import Database
from backends.sql.errors import SqlTimeout

LOCK_MS: Final = 1_000
"""Longest wait for a lock on a table in use: claims wait behind it."""
_LOCK: Final = 0x686F6E67796978  # "hongyix"
_PAUSE_S: Final = 1.0
_TRIES: Final = 600
_NOT_NOW: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.errors.DeadlockDetected,
)
Tell = Callable[[str], None]


class OnlineIndex(NamedTuple):
    """One index; `since` is the migration that names it."""

    name: str
    table: str
    definition: str
    """SQL behind `ON table`."""
    since: str
    plain: str = ""
    """The same for SQLite, where it differs."""
    on_sqlite: bool = True
    in_archive: bool = True


_ENDED_UNSENT: Final = "state IN ('PARKED', 'REJECTED', 'EXPIRED', 'UNDELIVERED', 'DROPPED')"
# A row enters the partial indexes of `deliveries` when its first call has ended: its claim pays for no
# entry. Rows under way are found by their owner, and are few.
INDEXES: Final = (
    OnlineIndex(
        "deliveries_created",
        "deliveries",
        "USING brin (created_at) WITH (pages_per_range = 16, autosummarize = on)",
        "0021",
        plain="(created_at)",
    ),
    # Rows stand where a page had room, so that the ranges of `deliveries_created` overlap. The expression
    # keeps the planner from this one where another index fits (decision 290).
    OnlineIndex(
        "deliveries_time",
        "deliveries",
        "((created_at + 0)) WHERE state <> 'IN_FLIGHT'",
        "0037",
        on_sqlite=False,  # there `deliveries_created` is such an index
    ),
    OnlineIndex(
        "deliveries_receiver_text",
        "deliveries",
        "(receiver_text_hash, created_at)"
        " WHERE receiver_text_hash IS NOT NULL AND state <> 'IN_FLIGHT'",
        "0038",
    ),
    # Of rows from before 0038: a search looks for the receiver's hash on each channel. Days in the archive
    # have the index of all hashes, `deliveries_receiver`.
    OnlineIndex(
        "deliveries_receiver_old",
        "deliveries",
        "(receiver_hash, created_at) WHERE receiver_hash IS NOT NULL AND receiver_text_hash IS NULL"
        " AND state <> 'IN_FLIGHT'",
        "0038",
        in_archive=False,
    ),
    OnlineIndex(
        "deliveries_template",
        "deliveries",
        "(template, created_at) WHERE template IS NOT NULL AND state <> 'IN_FLIGHT'",
        "0021",
    ),
    OnlineIndex(
        "deliveries_account",
        "deliveries",
        "(account, created_at) WHERE account IS NOT NULL AND state <> 'IN_FLIGHT'",
        "0034",
    ),
    OnlineIndex(
        "deliveries_place",
        "deliveries",
        "(kafka_partition, kafka_offset) WHERE kafka_offset IS NOT NULL AND state <> 'IN_FLIGHT'",
        "0035",
    ),
    # Of what ended unsent alone. The lane lets rows of other lanes be left out within the index.
    OnlineIndex(
        "deliveries_reason",
        "deliveries",
        f"(split_part(reason, ':', 1), updated_at, lane) WHERE {_ENDED_UNSENT} AND reason IS NOT NULL",
        "0036",
        plain="(substr(reason, 1, instr(reason || ':', ':') - 1), updated_at, lane)"
        f" WHERE {_ENDED_UNSENT} AND reason IS NOT NULL",
    ),
    OnlineIndex(
        "deliveries_state", "deliveries", f"(state, updated_at, lane) WHERE {_ENDED_UNSENT}", "0036"
    ),
    OnlineIndex(
        "receipts_delivery",
        "receipts",
        "(delivery_key) WHERE delivery_key IS NOT NULL",
        "0021",
    ),
)
REPLACED: Final = ("deliveries_receiver",)
"""Indexes in whose place others are. Programs of the version before read them: see `drop_replaced`."""
_DROP_MS: Final = 200
"""Longest time of one try to drop such an index: it locks the table and all its days."""
_DROP_TRIES: Final = 60
_TABLES: Final = """
SELECT c.oid::regclass::text AS shown, n.nspname AS place, c.relname AS name
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r'
   AND (c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(%(table)s))
        OR (n.nspname = 'archive' AND c.relname LIKE %(archived)s))
 ORDER BY n.nspname = 'archive', c.relname DESC"""
_LACKING: Final = """
SELECT format('ALTER TABLE %%s ADD COLUMN IF NOT EXISTS %%I %%s', c.oid::regclass, a.attname,
              format_type(a.atttypid, a.atttypmod))
  FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = to_regclass(%(table)s)
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r' AND c.relname LIKE %(archived)s
   AND a.attnum > 0 AND NOT a.attisdropped AND NOT a.attnotnull
   AND NOT EXISTS (SELECT FROM pg_attribute AS o
                    WHERE o.attrelid = c.oid AND o.attname = a.attname AND NOT o.attisdropped)
 ORDER BY a.attnum"""
_STATE: Final = """
SELECT i.indisvalid, EXISTS (SELECT FROM pg_inherits WHERE inhrelid = i.indexrelid) AS attached
  FROM pg_index AS i
 WHERE i.indexrelid = to_regclass(%(index)s)"""
# A partition that was made after the parent's index has one under a name of the server's choice.
_ATTACHED: Final = """
SELECT EXISTS (
    SELECT FROM pg_inherits AS h JOIN pg_index AS i ON i.indexrelid = h.inhrelid
     WHERE h.inhparent = to_regclass(%(parent)s) AND i.indrelid = to_regclass(%(table)s))"""
_THERE: Final = "SELECT to_regclass(%s) IS NOT NULL"
_PARTITIONED: Final = "SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%(table)s)"


def of_migration(since: str) -> list[OnlineIndex]:
    """Returns the indexes that this migration names."""
    return [index for index in INDEXES if index.since == since]


def create_now(run: Callable[[str], Any], since: str, *, is_postgres: bool) -> None:
    """Makes them at once: on SQLite, and on PostgreSQL in a ledger without rows."""
    for index in of_migration(since):
        if not (is_postgres or index.on_sqlite):
            continue
        spelt = index.definition if is_postgres else index.plain or index.definition
        run(f"CREATE INDEX {index.name} ON {index.table} {spelt}")


def create_where_empty(run: Callable[[str], Any], since: str, *, is_postgres: bool) -> None:
    """Makes them at once where nobody waits: on SQLite, and on PostgreSQL in a ledger without rows. `build`
    makes the others, while claims go on."""
    if not is_postgres or not run("SELECT EXISTS (SELECT 1 FROM deliveries)").scalar_one():
        create_now(run, since, is_postgres=is_postgres)


def drop_replaced(url: URL, tell: Tell, sleep: Callable[[float], None] = time.sleep) -> None:
    """Drops the indexes in whose place others are, on PostgreSQL. Call it where programs of this version
    have worked for a while. A table in use keeps its index until the next call. Raises SqlError."""
    database = Database(url, pool_size=1)
    try:
        if not database.is_postgres or missing(database):
            return
        with database.connection() as connection, _alone(connection, sleep):
            for name in REPLACED:
                if connection.execute(_THERE, (name,)).fetchone()[0]:
                    done = _dropped(connection, name, sleep)
                    tell(f"{name}: dropped" if done else f"{name}: still there, since it is in use")
    finally:
        database.close()


def _dropped(connection: Any, name: str, sleep: Callable[[float], None]) -> bool:
    try:
        _briefly(connection, f"DROP INDEX IF EXISTS {name}", sleep, _DROP_MS, _DROP_TRIES)
    except SqlTimeout:
        return False
    return True


def missing(database: Database) -> list[str]:
    """Returns the names of indexes that are not whole yet. Raises SqlError."""
    if not database.is_postgres:
        return []
    with database.connection() as connection:
        return [index.name for index in INDEXES if not _is_valid(connection, index.name)]


def mend_archive(url: URL) -> None:
    """Adds the columns that days in the archive lack, as those do that came back from an older dump. Raises
    SqlError."""
    database = Database(url, pool_size=1)
    try:
        if not database.is_postgres:
            return
        with database.connection() as connection:
            for table in ("deliveries", "payloads"):
                asked = {"table": table, "archived": f"{table}\\_%"}
                for (statement,) in connection.execute(_LACKING, asked).fetchall():
                    _briefly(connection, statement, time.sleep)
    finally:
        database.close()


def build(url: URL, tell: Tell, sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Makes the missing indexes, and names each step to `tell`. Returns the names of those made.

    May be killed, repeated and called by several processes. Raises SqlError.
    """
    database = Database(url, pool_size=1)
    try:
        wanted = [index for index in INDEXES if index.name in missing(database)]
        if not wanted:
            return []
        with database.connection() as connection, _alone(connection, sleep):
            for index in wanted:
                _build(connection, index, tell, sleep)
        return [index.name for index in wanted]
    finally:
        database.close()


@contextmanager
def _alone(connection: Any, sleep: Callable[[float], None]) -> Iterator[None]:
    """Holds the builders' lock. A statement that waited for it would hold up CREATE INDEX CONCURRENTLY, so
    this asks again and again."""
    connection.execute("SET statement_timeout = 0")
    while not connection.execute(f"SELECT pg_try_advisory_lock({_LOCK})").fetchone()[0]:
        sleep(_PAUSE_S)
    try:
        yield
    finally:
        connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")


def _build(
    connection: Any,
    index: OnlineIndex,
    tell: Tell,
    sleep: Callable[[float], None],
) -> None:
    (partitioned,) = connection.execute(_PARTITIONED, {"table": index.table}).fetchone()
    if not partitioned:
        tell(index.name)
        _concurrently(connection, index.table, index.name, index.definition)
        return

    def briefly(statement: str) -> None:
        _briefly(connection, statement, sleep)

    briefly(f"CREATE INDEX IF NOT EXISTS {index.name} ON ONLY {index.table} {index.definition}")
    asked = {"table": index.table, "archived": f"{index.table}\\_%"}
    for shown, place, name in connection.execute(_TABLES, asked).fetchall():
        own = f"{name}_{index.name.removeprefix(f'{index.table}_')}"
        is_part = place != "archive"
        there = {"parent": index.name, "table": shown}
        if not is_part and not index.in_archive:
            continue
        if is_part and connection.execute(_ATTACHED, there).fetchone()[0]:
            continue
        if _concurrently(connection, shown, own, index.definition, place):
            tell(f"{index.name}: {shown}")
        if is_part:
            briefly(f"ALTER INDEX {index.name} ATTACH PARTITION {place}.{own}")


def _concurrently(connection: Any, table: str, name: str, definition: str, place: str = "") -> bool:
    """Makes one table's index. Drops what a killed build left. Returns False if it was there."""
    where = f"{place}.{name}" if place else name
    found = connection.execute(_STATE, {"index": where}).fetchone()
    if found is not None and found[0]:
        return False
    connection.execute("SET lock_timeout = 0")  # it waits for transactions, and nobody waits for it
    if found is not None:
        connection.execute(f"DROP INDEX CONCURRENTLY {where}")
    connection.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} {definition}")
    return True


def _briefly(
    connection: Any,
    statement: str,
    sleep: Callable[[float], None],
    longest_ms: int | None = None,
    tries: int = _TRIES,
) -> None:
    """Runs a statement that needs locks claims wait behind: for a second at most, then again. One that
    takes several locks waits no longer for all of them. Raises SqlTimeout."""
    limit = LOCK_MS if longest_ms is None else longest_ms
    connection.execute(f"SET lock_timeout = {limit}")
    connection.execute(f"SET statement_timeout = {limit}")
    for _ in range(tries):
        try:
            connection.execute(statement)
        except _NOT_NOW:
            sleep(_PAUSE_S)
        else:
            connection.execute("SET statement_timeout = 0")
            return
    connection.execute("SET statement_timeout = 0")
    raise SqlTimeout(f"{statement.partition(' ON ')[0]}: the table was never free for {limit} ms")


def _is_valid(connection: Any, name: str) -> bool:
    found = connection.execute(_STATE, {"index": name}).fetchone()
    return found is not None and bool(found[0])
