"""An engine of the relay's own on a business's database: PostgreSQL, MySQL or MariaDB, SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, create_engine, event
from sqlalchemy import exc as sa
from sqlalchemy.engine import URL, make_url

from hongyan_client.outbox.clock import POSTGRESQL, SQLITE, spelling

DRIVERS: Final = {
    POSTGRESQL: "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    SQLITE: "sqlite",
}
_IDLE_S: Final = 5
_POSTGRES: Final[Mapping[str, Any]] = {
    "application_name": "hongyan-relay",
    "prepare_threshold": None,
    "keepalives": 1,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 6_000,
}
"""Options of the driver, where the URL names no other value. PgBouncer gives each transaction another
server's connection, and older ones know no prepared statements. A dead peer is noticed within 6 s."""


class OutboxWaits(NamedTuple):
    """Longest waits for a business's database, in seconds."""

    busy_s: float = 5.0
    """For a connection, and for SQLite's lock."""
    statement_s: float = 10.0
    """For a statement of PostgreSQL, which ends it itself."""
    answer_s: float = 15.0
    """For an answer of a server; on PostgreSQL at least a second longer than `statement_s`."""


RELAY_WAITS: Final = OutboxWaits()


def outbox_url(url: str) -> URL:
    """Returns the URL with the driver that the relay uses. Raises ValueError without the URL's text."""
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    except (sa.ArgumentError, ValueError):
        raise ValueError(
            "it cannot be read: write postgresql://…, mysql://… or sqlite:///FILE"
        ) from None
    if "@" in (parsed.host or ""):  # errors of a connection would show the rest of the password
        raise ValueError("an @ in its password is written %40")
    driver = DRIVERS.get(parsed.get_backend_name())
    if driver is None:
        raise ValueError(
            f"{parsed.get_backend_name()} is not supported: use postgresql, mysql, mariadb or sqlite"
        )
    return parsed.set(drivername=driver)


def outbox_engine(
    url: URL | str, *, pool_size: int = 4, waits: OutboxWaits = RELAY_WAITS
) -> Engine:
    """Returns an engine with short waits and read committed transactions. Raises ValueError."""
    made = outbox_url(url.render_as_string(hide_password=False) if isinstance(url, URL) else url)
    if made.get_backend_name() == SQLITE:
        return _sqlite(made, waits)
    engine = create_engine(
        made,
        pool_size=pool_size,
        pool_timeout=waits.busy_s,
        pool_pre_ping=True,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        connect_args=_connect_args(made, waits),
    )
    if spelling(made.get_backend_name()) == "mysql":
        event.listen(engine, "connect", _end_idle_transactions)
    else:
        _limit_answers(engine, waits)
    return engine


def _connect_args(url: URL, waits: OutboxWaits) -> dict[str, Any]:
    if spelling(url.get_backend_name()) == "mysql":
        return {
            "connect_timeout": round(waits.busy_s),
            "read_timeout": waits.answer_s,
            "write_timeout": waits.answer_s,
        }
    ours = {"connect_timeout": round(waits.busy_s), **_POSTGRES}
    # SQLAlchemy gives the driver the URL's own options, several hosts in libpq's form.
    return {name: value for name, value in ours.items() if name not in url.query}


def _limit_answers(engine: Engine, waits: OutboxWaits) -> None:
    from hongyan_client.outbox.postgres_connection import limit_answers  # loads psycopg

    limit_answers(engine, max(waits.answer_s, waits.statement_s + 1))


def _end_idle_transactions(connection: Any, _record: object) -> None:
    """Lets MariaDB end the session of a paused process, as PostgreSQL does; MySQL has no such setting."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'idle_transaction_timeout'")
        if cursor.fetchone():
            cursor.execute(f"SET SESSION idle_transaction_timeout = {_IDLE_S}")


def _sqlite(url: URL, waits: OutboxWaits) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,
        connect_args={
            "timeout": waits.busy_s,
            "isolation_level": None,
            "check_same_thread": False,
        },
    )
    event.listen(engine, "connect", _durable)
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _durable(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA synchronous = FULL")
