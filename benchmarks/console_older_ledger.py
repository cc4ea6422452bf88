"""A filled ledger of today as an older version left it, for the upgrade's benchmark.

The copy is one of files, so that ten million rows take minutes. Whatever a fresh database of the older
version does not have is dropped: tables, columns, indexes, functions. Raises ValueError if something that
it has is missing then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from backends.sql.schema import VERSION_TABLE
from benchmarks.ground import empty_database

_COPY: Final = sql.SQL("CREATE DATABASE {new} TEMPLATE {old} STRATEGY = file_copy")
_VERSION: Final = f"SELECT version_num FROM {VERSION_TABLE}"
# Partitions and what belongs to them come and go with their parent.
_TABLES: Final = """
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"""
_COLUMNS: Final = """
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.attnum > 0 AND NOT a.attisdropped"""
_INDEXES: Final = """
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('i', 'I') AND NOT c.relispartition"""
_FUNCTIONS: Final = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace"""
_VIEWS: Final = """
SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class AS c
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'"""
Names = set[tuple[Any, ...]]


@contextmanager
def older_copy(
    server: str, name: str, filled: str, migrate: Callable[[str], None]
) -> Iterator[str]:
    """Yields the address of a copy of the database `filled`, which nobody uses meanwhile, as the version to
    which `migrate` brings an empty database left it. Drops the copy afterwards. Raises ValueError."""
    plain = server.replace("+psycopg", "")
    with empty_database(server, f"{name}_empty") as empty:
        migrate(empty)
        copy = sql.Identifier(name)
        with psycopg.connect(plain, autocommit=True) as admin:
            admin.execute(_COPY.format(new=copy, old=sql.Identifier(filled)))
        try:
            url = f"{server.rpartition('/')[0]}/{name}"
            _strip(url.replace("+psycopg", ""), empty.replace("+psycopg", ""))
            yield url
        finally:
            with psycopg.connect(plain, autocommit=True) as admin:
                admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copy))


def _strip(url: str, pattern: str) -> None:
    with psycopg.connect(pattern) as wanted, psycopg.connect(url) as copy:
        for view, _text in copy.execute(_VIEWS).fetchall():
            copy.execute(sql.SQL("DROP VIEW {} CASCADE").format(sql.Identifier(view)))
        for (table,) in _more(copy, wanted, _TABLES):
            copy.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(table)))
        for table, column in _more(copy, wanted, _COLUMNS):
            names = [sql.Identifier(table), sql.Identifier(column)]
            copy.execute(sql.SQL("ALTER TABLE {} DROP COLUMN {} CASCADE").format(*names))
        for (index,) in _more(copy, wanted, _INDEXES):
            copy.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
        for (function,) in _more(copy, wanted, _FUNCTIONS):
            copy.execute(f"DROP FUNCTION {function} CASCADE".encode())
        for view, text in wanted.execute(_VIEWS).fetchall():
            named = sql.Identifier(view)
            copy.execute(sql.SQL("CREATE VIEW {} AS {}").format(named, sql.SQL(text)))
        (version,) = wanted.execute(_VERSION).fetchone() or ("",)
        copy.execute(f"UPDATE {VERSION_TABLE} SET version_num = %s".encode(), [version])
        for query in (_TABLES, _COLUMNS, _INDEXES, _FUNCTIONS, _VIEWS):
            if missing := _more(wanted, copy, query):
                raise ValueError(f"the copy lacks {sorted(missing)}")


def _more(one: psycopg.Connection[Any], other: psycopg.Connection[Any], query: str) -> Names:
    """Returns names that the first database has and the second has not."""
    has: Names = {tuple(row) for row in one.execute(query.encode())}
    return has - {tuple(row) for row in other.execute(query.encode())}
