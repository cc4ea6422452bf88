"""PostgreSQL databases of one's own on a server that runs: empty, or with an upgraded ledger.

A ledger is not migrated each time, which takes the server more than a second, but copied from a template
that is made once for these migrations and this day.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import create_engine

from backends.settings import DatabaseSettings, Settings
from backends.sql import migrations
from idempotency import partitions
from idempotency.sql_ledger import upgrade

_LOCK = 0x7465737473
"""Advisory: who makes the template."""


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped afterwards."""
    with _made(server_url, template="template1") as name:
        yield named(server_url, name)


@contextmanager
def fresh_ledger(server_url: str) -> Iterator[str]:
    """The URL of a new database with an upgraded ledger that has an identity of its own; dropped
    afterwards."""
    with _made(server_url, template=_template(server_url)) as name:
        url = named(server_url, name)
        with connected(url) as connection:
            connection.execute("UPDATE ledger_identity SET id = %s", (secrets.token_hex(6),))
        yield url


@contextmanager
def fresh_mariadb(server_url: str) -> Iterator[str]:
    """The URL of a new, empty MariaDB database, dropped afterwards."""
    name = f"t_{uuid.uuid4().hex[:16]}"
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as server:
        server.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield named(server_url, name)
    finally:
        with engine.connect() as server:
            server.exec_driver_sql(f"DROP DATABASE {name}")
        engine.dispose()


def named(server_url: str, name: str) -> str:
    """The URL of another database of the server."""
    return server_url.rpartition("/")[0] + "/" + name


def connected(url: str) -> psycopg.Connection:
    """To be entered; every statement counts at once."""
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


@contextmanager
def _made(server_url: str, template: str) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex[:16]}"
    with connected(server_url) as server:
        server.execute(_create(name, template))
    try:
        yield name
    finally:
        try:
            with connected(server_url) as server:
                server.execute(_statement("DROP DATABASE IF EXISTS {} WITH (FORCE)", name))
        except psycopg.OperationalError:
            pass  # a test stopped the server: its data goes with its folder


def _template(server_url: str) -> str:
    """Its name; made by whoever comes first, and seen only when it is whole."""
    name = f"template_{datetime.now(UTC):%Y%m%d}_{_version()}"
    with connected(server_url) as server:
        server.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        found = "SELECT 1 FROM pg_database WHERE datname = %s"
        if server.execute(found, (name,)).fetchone() is None:
            draft = f"{name}_draft"
            server.execute(_statement("DROP DATABASE IF EXISTS {} WITH (FORCE)", draft))
            server.execute(_create(draft, "template1"))
            upgrade(Settings(database=DatabaseSettings(url=named(server_url, draft))))
            server.execute(_statement("ALTER DATABASE {} RENAME TO {}", draft, name))
    return name


def _version() -> str:
    """Changes with the migrations and with what makes partitions."""
    scripts = sorted(Path(str(migrations.__file__)).parent.rglob("*.py"))
    texts = [path.read_bytes() for path in (*scripts, Path(partitions.__file__))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]


def _create(name: str, template: str) -> sql.Composed:
    return _statement("CREATE DATABASE {} TEMPLATE {}", name, template)


def _statement(text: str, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*map(sql.Identifier, names))
