"""Ledgers of PostgreSQL that are used again by the tests of one process.

A ledger is a database of 450 tables and indexes. To copy and drop one takes the server 0.4 s of processor
time; to empty one takes a tenth of that. A test gets one only if nothing tells it from a new copy: rows,
sequences, functions and counters are as in the template. One whose schema or statistics changed, or that
somebody is still connected to, is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

_SCHEMA: Final = """
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
    SELECT concat_ws(' ', 'class', oid, relname, relnamespace, relkind, relowner, relacl, relnatts,
        reloptions, relpersistence, relhastriggers, pg_get_expr(relpartbound, oid), relreplident) AS line
        FROM pg_class WHERE oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace
    UNION ALL SELECT concat_ws(' ', 'column', attrelid, attnum, attname, atttypid, attnotnull, attisdropped,
        attacl, attstattarget, attoptions, attstorage)
        FROM pg_attribute WHERE attrelid >= 16384 AND attnum > 0
    UNION ALL SELECT concat_ws(' ', 'default', adrelid, adnum, pg_get_expr(adbin, adrelid)) FROM pg_attrdef
    UNION ALL SELECT concat_ws(' ', 'constraint', oid, conrelid, conname, convalidated)
        FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'index', indexrelid, indisvalid, indisready)
        FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'trigger', oid, tgrelid, tgname, tgenabled) FROM pg_trigger
    UNION ALL SELECT concat_ws(' ', 'function', oid, proowner, proacl, CASE WHEN prokind IN ('f', 'p')
        THEN pg_get_functiondef(oid) ELSE xmin::text END) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'view', oid, xmin) FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'type', oid, xmin) FROM pg_type WHERE oid >= 16384 AND typrelid = 0
    UNION ALL SELECT concat_ws(' ', 'namespace', oid, xmin) FROM pg_namespace
    UNION ALL SELECT concat_ws(' ', 'extension', oid, xmin) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'policy', oid, xmin) FROM pg_policy
    UNION ALL SELECT concat_ws(' ', 'extended statistics', oid, xmin) FROM pg_statistic_ext
    UNION ALL SELECT concat_ws(' ', 'statistics', starelid, staattnum, xmin)
        FROM pg_statistic WHERE starelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'default rights', oid, xmin) FROM pg_default_acl
    UNION ALL SELECT concat_ws(' ', 'large object', oid) FROM pg_largeobject_metadata
    UNION ALL SELECT concat_ws(' ', 'publication', oid, xmin) FROM pg_publication
    UNION ALL SELECT concat_ws(' ', 'setting', s.xmin) FROM pg_db_role_setting s
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT concat_ws(' ', 'database', datconnlimit, datallowconn, datacl, datdba)
        FROM pg_database WHERE datname = current_database()
    UNION ALL SELECT concat_ws(' ', 'prepared', gid)
        FROM pg_prepared_xacts WHERE database = current_database()
) AS lines
"""
_OTHERS: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_WRITTEN: Final = """
SELECT relname, pg_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
"""
_SMALL: Final = 64 << 10
"""Bytes of a table up to which its rows are deleted. To truncate it makes a new file for it and for each of
its up to 19 indexes, which takes the server many times as long."""
_COUNTED: Final = (
    "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL"
)
_FUNCTIONS: Final = """
SELECT oid::regprocedure::text, pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND prokind IN ('f', 'p')
"""
_TRACE_DAYS: Final = r"""
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'trace_events'::regclass AND c.relname ~ '^trace_events_\d{8}$'
"""
"""Partitions that every process makes with its first trace events; a template has none of them."""
_LEAVING_S: Final = 0.5
"""Longest time in which the server ends the process of a closed connection."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A database that is like its template, and what it takes to make it so again."""

    name: str
    schema: str
    """Digest of everything but rows."""
    rows: dict[str, bytes]
    """Table → its rows, as COPY writes them; tables without rows are absent."""
    counted: frozenset[str]
    """Sequences that migrations have used."""
    functions: dict[str, str]
    """Function → its statement. Many tests have a clock of their own."""


def known(connection: psycopg.Connection, name: str) -> Ledger:
    """Returns what a new copy of the template is like."""
    rows = {table: _rows(connection, table) for table in _names(connection, _WRITTEN)}
    counted = frozenset(_names(connection, _COUNTED))
    return Ledger(name, _one(connection, _SCHEMA), rows, counted, _functions(connection))


def emptied(connection: psycopg.Connection, ledger: Ledger) -> bool:
    """Makes a ledger like its template again. Returns False if it cannot be: it must then be dropped."""
    if not _alone(connection):
        return False
    for _, statement in ledger.functions.items() - _functions(connection).items():
        connection.execute(statement.encode())
    for day in _names(connection, _TRACE_DAYS):
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(day)))
    if _one(connection, _SCHEMA) != ledger.schema:
        return False
    written = {str(name): int(size) for name, size in connection.execute(_WRITTEN)}
    counted = set(_names(connection, _COUNTED))
    if not ledger.counted <= counted:
        return False
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")  # no trigger has a say
        _empty(connection, {name: written[name] for name in written.keys() - ledger.rows.keys()})
        for table, rows in ledger.rows.items():
            if _rows(connection, table) != rows:
                _refill(connection, table, rows)
        for sequence in counted - ledger.counted:
            connection.execute(
                sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(sequence))
            )
    connection.execute("SELECT pg_stat_reset()")
    return True


def _empty(connection: psycopg.Connection, sizes: Mapping[str, int]) -> None:
    for table, size in sorted(sizes.items()):
        if size <= _SMALL:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    if large := sorted(table for table, size in sizes.items() if size > _SMALL):
        tables = sql.SQL(", ").join(map(sql.Identifier, large))
        connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(tables))


def _alone(connection: psycopg.Connection) -> bool:
    """Waits a moment for the server's processes of connections that were closed just now."""
    end = time.monotonic() + _LEAVING_S
    while _one(connection, _OTHERS):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _functions(connection: psycopg.Connection) -> dict[str, str]:
    return {str(name): str(text) for name, text in connection.execute(_FUNCTIONS)}


def _refill(connection: psycopg.Connection, table: str, rows: bytes) -> None:
    name = sql.Identifier(table)
    connection.execute(sql.SQL("DELETE FROM {}").format(name))
    with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
        copy.write(rows)


def _rows(connection: psycopg.Connection, table: str) -> bytes:
    wanted = sql.SQL("COPY (SELECT * FROM {0} ORDER BY {0}) TO STDOUT").format(
        sql.Identifier(table)
    )
    with connection.cursor().copy(wanted) as copy:
        return b"".join(map(bytes, copy))


def _names(connection: psycopg.Connection, statement: Any) -> list[str]:
    return [str(row[0]) for row in connection.execute(statement)]


def _one(connection: psycopg.Connection, statement: Any) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]
