"""Maps errors of database drivers, so that no other package needs to know a driver.

    SqlError
     ├─ SqlAway        the server cannot be reached, went away, is busy or refuses writes for now
     │   ├─ SqlTimeout    a lock or a statement took longer than its limit
     │   └─ SqlPoolBusy   every connection of our own pool is in use
     ├─ SqlNoSchema    a table, column or function that ours needs is not there
     └─ SqlNoDatabase  the file is no SQLite database, or a damaged one

Any other error of a driver is a bug of ours and stays as it is.
"""

from __future__ import annotations

import sqlite3

import psycopg
from sqlalchemy import exc as sa

_AWAY_CLASSES = ("08", "53", "57", "58")
"""Connection, resources, operator intervention, system error: PostgreSQL's, by SQLSTATE class."""
_AWAY_STATES = frozenset({"25006", "25P03", "40001", "40003", "40P01", "55P03"})
"""Read-only after a failover, idle timeout, serialization, completion unknown, deadlock, lock."""
_NO_SCHEMA_STATES = frozenset({"3F000", "42703", "42883", "42P01"})
_TIMEOUT_STATES = frozenset({"55P03", "57014"})
"""Lock not available, statement cancelled."""
_SQLITE_TIMEOUT = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SQLITE_AWAY = frozenset(
    {
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_SQLITE_NO_DATABASE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class SqlError(Exception):
    """Base of the ladder."""


class SqlAway(SqlError):
    """The statement is right: repeat it as it was, once the database is back."""


class SqlTimeout(SqlAway):
    """A lock was not free in time, or a statement took longer than its limit."""


class SqlPoolBusy(SqlAway):
    """No connection of the pool was free in time; the server need not be away."""


class SqlNoSchema(SqlError):
    """The schema is missing or not this version's."""


class SqlNoDatabase(SqlError):
    """The file of a `sqlite:///FILE` cannot be read as a database."""


def judged(exc: BaseException) -> BaseException:
    """Returns our error for one that the ladder names, else `exc` itself."""
    if isinstance(exc, sa.TimeoutError):
        return SqlPoolBusy("every connection of the pool is in use")
    cause = exc.orig if isinstance(exc, sa.DBAPIError) else exc
    if isinstance(cause, psycopg.Error):
        return _judged_postgres(cause, exc)
    if isinstance(cause, sqlite3.Error):
        return _judged_sqlite(cause, exc)
    return exc


def _judged_postgres(cause: psycopg.Error, exc: BaseException) -> BaseException:
    state = cause.sqlstate or ""
    if state in _NO_SCHEMA_STATES:
        return SqlNoSchema(_sentence(cause))
    if state in _TIMEOUT_STATES:
        return SqlTimeout(_sentence(cause))
    # An error without a state is libpq's own: it has no server.
    lost = isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError) and not state
    if lost or state[:2] in _AWAY_CLASSES or state in _AWAY_STATES:
        return SqlAway(_sentence(cause))
    return exc


def _judged_sqlite(cause: sqlite3.Error, exc: BaseException) -> BaseException:
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code in _SQLITE_TIMEOUT:
        return SqlTimeout(_sentence(cause))
    if code in _SQLITE_AWAY:
        return SqlAway(_sentence(cause))
    if code in _SQLITE_NO_DATABASE:
        return SqlNoDatabase(_sentence(cause))
    if code == sqlite3.SQLITE_ERROR and str(cause).startswith("no such "):
        return SqlNoSchema(_sentence(cause))
    return exc


def _sentence(exc: BaseException) -> str:
    """Returns the first line: drivers put the statement and its values on the others."""
    return str(exc).strip().partition("\n")[0] or type(exc).__name__
