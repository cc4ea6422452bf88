"""Upgrades the database's schema, and reads its version.

Two processes may upgrade at once: the second waits for a lock (PostgreSQL's advisory one, SQLite's write
lock), and then finds nothing to do. A migration happens whole or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.engine import URL

from backends.sql.database import Database

VERSION_TABLE: Final = "hongyan_schema"
_LOCK: Final = 0x686F6E6779616E  # "hongyan"
_SCRIPTS = Path(__file__).parent / "migrations"
_WAIT_MS: Final = 600_000
"""Time limit of a migration of a large table, and of the wait for it."""


def upgrade(url: URL) -> str:
    """Brings the database to `head()`. Returns the version before, "" for none. Raises SqlAway."""
    database = Database(url, pool_size=1)
    try:
        with database.begin() as connection:
            return _upgrade(connection, database.is_postgres)
    finally:
        database.close()


def _upgrade(connection: Connection, is_postgres: bool) -> str:
    if is_postgres:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_WAIT_MS}")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {_WAIT_MS}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    before = _version(connection)
    if before != head():
        command.upgrade(_config(connection), "head")
    return before


def current(database: Database) -> str:
    """Returns the version of the database, "" for none. Raises SqlAway."""
    with database.errors(), database.engine.connect() as connection:
        return _version(connection)


def head() -> str:
    """Returns the version that this program needs."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def _version(connection: Connection) -> str:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision() or ""


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
