"""Upgrades the database's schema, and reads its version.

Two processes may upgrade at once: the second waits for a lock (PostgreSQL's advisory one, SQLite's write
lock), and then finds nothing to do. A migration happens whole or not at all.

Claims go on meanwhile. Each migration is a transaction of its own, so that none keeps the locks of the one
before (decision 266). It waits for a lock that holds up claims for a second at most. Then it gives all its
locks back, and tries again. In an empty database all migrations are one transaction. Indexes of large
tables are made afterwards (backends/sql/online_indexes.py).

A program also runs on a newer schema whose migrations only added to its own. So the database keeps
`OLDEST_PROGRAM` beside its version, for programs that were made before (docs/upgrade.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection
from sqlalchemy.engine import URL

from backends.sql.database import Database
from backends.sql.errors import SqlTimeout

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE: Final = "hongyan_schema"
OLDEST_PROGRAM: Final = "0016"
"""Version of the oldest program that runs on this schema. A migration that makes a statement of an older
program fail, because it removes or renames something, sets it to its own number."""
_OLDEST_OF: Final = f"SELECT oldest_program FROM {VERSION_TABLE}"  # noqa: S608 (constants alone)
_VERSION_OF: Final = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 (constants alone)
_HAS_TABLE: Final = {
    "postgresql": f"SELECT to_regclass('{VERSION_TABLE}')",
    "sqlite": f"SELECT name FROM sqlite_master WHERE type = 'table' AND name = '{VERSION_TABLE}'",  # noqa: S608
}
"""By dialect. SQLAlchemy's inspector compiles a larger question for each engine, and each start asks."""
_HAS_OLDEST: Final = {
    "postgresql": "SELECT attnum FROM pg_attribute"  # noqa: S608
    f" WHERE attrelid = to_regclass('{VERSION_TABLE}') AND attname = 'oldest_program' AND NOT attisdropped",
    "sqlite": f"SELECT cid FROM pragma_table_info('{VERSION_TABLE}') WHERE name = 'oldest_program'",  # noqa: S608
}
_ADD_OLDEST: Final = f"ALTER TABLE {VERSION_TABLE} ADD COLUMN oldest_program TEXT"
_SET_OLDEST: Final = f"UPDATE {VERSION_TABLE} SET oldest_program = '{OLDEST_PROGRAM}'"  # noqa: S608
_LOCK: Final = 0x686F6E6779616E  # "hongyan"
_SCRIPTS = Path(__file__).parent / "migrations"
_WAIT_MS: Final = 600_000
"""Time limit of a migration of a large table, and of the wait for it."""
LOCK_MS: Final = 1_000
"""Longest wait for a lock on a table in use: claims wait behind it."""
_PAUSE_S: Final = 1.0


def upgrade(url: URL, sleep: Callable[[float], None] = time.sleep) -> str:
    """Brings the database to `head()`. Returns the version before, "" for none. Raises SqlAway."""
    database = Database(url, pool_size=1)
    until = time.monotonic() + _WAIT_MS / 1_000
    first: str | None = None
    try:
        while True:
            try:
                with database.begin() as connection:
                    before, is_last = _step(connection, database.is_postgres)
            except SqlTimeout:
                if not database.is_postgres or time.monotonic() >= until:
                    raise
                sleep(_PAUSE_S)  # what waited goes on first
                continue
            first = before if first is None else first
            if is_last:
                return first
    finally:
        database.close()


def _step(connection: Connection, is_postgres: bool) -> tuple[str, bool]:
    """Runs the next migration. Returns the version before it, and whether none is left."""
    if is_postgres:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_WAIT_MS}")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {_WAIT_MS}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS}")
    before = _version(connection)
    target = _next(before)
    if target:
        from alembic import command  # 0.2 s that programs which only read the version do without

        command.upgrade(_config(connection), target)
    if not is_newer(before):
        _keep_oldest(connection)
    return before, target in ("", head())


def runs_on(found: str, oldest: str) -> bool:
    """Returns whether this program runs on a database of version `found` that names `oldest`."""
    return found == head() or (is_newer(found) and "" < oldest <= head())


def current(database: Database) -> str:
    """Returns the version of the database, "" for none. Raises SqlAway."""
    with database.errors(), database.engine.connect() as connection:
        return _version(connection)


def oldest_program(database: Database) -> str:
    """Returns the oldest program that runs on the database, "" if it names none. Raises SqlAway."""
    with database.errors(), database.engine.connect() as connection:
        if not _has_oldest(connection):
            return ""
        found = connection.exec_driver_sql(_OLDEST_OF).scalar()
        return str(found or "")


def head() -> str:
    """Returns the version that this program needs: that of the last migration's file."""
    return _numbers()[-1]


@cache
def _numbers() -> list[str]:
    """Returns the number of every migration's file, in order."""
    return sorted(path.name[1:5] for path in (_SCRIPTS / "versions").glob("v[0-9]*.py"))


def _next(before: str) -> str:
    """Returns the version that comes after this one; empty at the head and above it. After none comes the
    head: nobody waits for an empty database."""
    if before == "":
        return head()
    return next((one for one in _numbers() if one > before), "")


def _version(connection: Connection) -> str:
    if not _finds(connection, _HAS_TABLE):
        return ""
    return str(connection.exec_driver_sql(_VERSION_OF).scalar() or "")


def is_newer(found: str) -> bool:
    """Returns whether the version is of a newer program. Versions are four digits, in order."""
    return found > head()


def _has_oldest(connection: Connection) -> bool:
    return _finds(connection, _HAS_OLDEST)


def _finds(connection: Connection, question: Mapping[str, str]) -> bool:
    return connection.exec_driver_sql(question[connection.dialect.name]).scalar() is not None


def _keep_oldest(connection: Connection) -> None:
    if not _has_oldest(connection):
        connection.exec_driver_sql(_ADD_OLDEST)
    connection.exec_driver_sql(_SET_OLDEST)


def _config(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
