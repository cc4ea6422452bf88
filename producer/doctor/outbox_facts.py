"""Reads the settings of a business's database that decide what a crash may take of its outbox. It changes
nothing."""

from __future__ import annotations

import time
from typing import Any, Final, Literal, cast

from sqlalchemy import Connection, select, text

from backends.settings import Settings
from hongyan_client.outbox.clock import POSTGRESQL, SQLITE, DatabaseMillis
from hongyan_client.outbox.engine import OutboxWaits
from hongyan_client.outbox.errors import outbox_errors
from producer.doctor.database_facts import clock
from producer.doctor.facts import ClockFacts, OutboxFacts
from producer.relay.opening import outbox_for_a_look

WAITS: Final = OutboxWaits(busy_s=3.0, statement_s=3.0, answer_s=3.0)
# `reset_val`: the value of other sessions than ours.
_POSTGRES_SETTINGS: Final = text(
    "SELECT name, reset_val, source FROM pg_settings WHERE name IN"
    " ('synchronous_commit', 'fsync', 'full_page_writes')"
)
_MYSQL: Final = (
    "innodb_flush_log_at_trx_commit",
    "innodb_lock_wait_timeout",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "max_allowed_packet",
)
_ISOLATIONS: Final = ("transaction_isolation", "tx_isolation")
"""MySQL 8 and MariaDB 11 know the first one, older MariaDB the second."""


def read_outbox(settings: Settings) -> tuple[OutboxFacts, ClockFacts]:
    """Returns the facts and the database's clock. Raises OutboxUnread."""
    with (
        outbox_for_a_look(settings, WAITS) as opened,
        outbox_errors(opened.store.name),
        opened.engine.connect() as connection,
    ):
        return _read(settings, connection)


def _read(settings: Settings, connection: Connection) -> tuple[OutboxFacts, ClockFacts]:
    kind = _kind(connection)
    if kind == POSTGRESQL:
        rows = connection.execute(_POSTGRES_SETTINGS).all()
        found = {row.name: row.reset_val or "" for row in rows}
        sources = {row.name: f"pg_settings, {row.source}" for row in rows}
    elif kind == SQLITE:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        found, sources = {"journal_mode": str(journal)}, {"journal_mode": "PRAGMA of the file"}
    else:
        found = _variables(connection)
        sources = dict.fromkeys(found, "SHOW GLOBAL VARIABLES")
    before_ms = _wall_ms()
    now_ms = int(connection.execute(select(DatabaseMillis())).scalar_one())
    facts = OutboxFacts(
        kind=kind,
        version=_version(connection, kind),
        settings=found,
        sources=sources,
        lease_s=settings.relay.lease_s,
        late_s=settings.relay.late_s,
    )
    return facts, clock("outbox database", now_ms, before_ms, _wall_ms())


def _kind(connection: Connection) -> Literal["postgresql", "mysql", "mariadb", "sqlite"]:
    dialect: Any = connection.dialect
    if getattr(dialect, "is_mariadb", False):
        return "mariadb"
    return cast(Literal["postgresql", "mysql", "sqlite"], dialect.name)


def _variables(connection: Connection) -> dict[str, str]:
    """Returns the global variables: sessions of the business begin with them."""
    names = ", ".join(f"'{name}'" for name in (*_MYSQL, *_ISOLATIONS))
    rows = connection.exec_driver_sql(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    found = {str(name): str(value) for name, value in rows}
    isolation = next((found.pop(name) for name in _ISOLATIONS if name in found), "")
    return {name: found[name] for name in _MYSQL if name in found} | {"isolation": isolation}


def _version(connection: Connection, kind: str) -> str:
    if kind == POSTGRESQL:
        return str(connection.exec_driver_sql("SHOW server_version").scalar_one())
    function = "sqlite_version()" if kind == SQLITE else "version()"
    return str(connection.exec_driver_sql(f"SELECT {function}").scalar_one())


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
