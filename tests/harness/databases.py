"""Databases of one's own: empty, or with an upgraded ledger.

A ledger is not migrated each time. On PostgreSQL, where that takes the server more than a second, it is
copied from a template that is made once for these migrations, this day and what furnishes it, and used
again by later tests of its process (see `ledgers`). On SQLite, where that takes a tenth of a second of
processor time, it is a copy of a file that each process migrates once.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy import create_engine

from backends.settings import DatabaseSettings, Settings
from backends.sql import migrations, online_indexes
from backends.sql.database import database_url
from idempotency import partitions
from idempotency.sql_ledger import upgrade
from tests.harness import ledgers

Furnish = Callable[[str], None]
"""Gets the URL of a new ledger, and puts in what all tests want to find there."""
_LOCK = 0x7465737473
"""Advisory: who makes the template."""


class _Kept(NamedTuple):
    """A ledger, and a connection to it that stays open while tests use it one after the other: a new one
    costs the server as much as many a test."""

    ledger: ledgers.Ledger
    connection: psycopg.Connection


_KEPT: dict[tuple[str, str, Furnish | None], list[_Kept]] = {}
"""Server, template and furnishing → ledgers of this process that no test uses now."""
_IN_USE: set[str] = set()
"""Names of the ledgers that a test uses now: they are of this version."""


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped afterwards."""
    with _made(server_url, template="template1") as name:
        yield named(server_url, name)


@contextmanager
def fresh_ledger(server_url: str, furnish: Furnish | None = None) -> Iterator[str]:
    """The URL of a new database with an upgraded ledger that has an identity of its own; dropped
    afterwards. It is as `furnish`, a function of a module, left its template."""
    kept = _KEPT.setdefault((server_url, _template_name(furnish), furnish), [])
    one = _of_kept(kept) or _copied(server_url, furnish)
    _IN_USE.add(one.ledger.name)
    try:
        yield named(server_url, one.ledger.name)
    finally:
        _IN_USE.discard(one.ledger.name)
        if _emptied(one):
            kept.append(one)
        else:
            one.connection.close()
            _drop(server_url, one.ledger.name)


def drop_kept() -> None:
    """Drops the ledgers that no later test of this process gets."""
    for (server_url, *_), kept in _KEPT.items():
        for ledger, connection in kept:
            connection.close()
            _drop(server_url, ledger.name)
    _KEPT.clear()


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


def upgraded(settings: Settings) -> None:
    """Brings a test's database to this version, as `hongyan db upgrade` does. A SQLite file that is not
    there yet becomes a copy of a migrated one, with an identity and a key of its own. A fresh ledger stays
    as it is."""
    url = database_url(settings.database.url, settings.base)
    if url.database in _IN_USE:
        return
    file = Path(str(url.database))
    if url.get_backend_name() != "sqlite" or file.exists():
        upgrade(settings)
        return
    file.write_bytes(_migrated_file())
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("UPDATE ledger_identity SET id = ?", (secrets.token_hex(6),))
        connection.execute("UPDATE resend_job_key SET signing_key = ?", (secrets.token_hex(32),))


@cache
def _migrated_file() -> bytes:
    """The SQLite file of an empty, upgraded ledger."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.db"
        upgrade(Settings(database=DatabaseSettings(url=f"sqlite:///{file}")))
        assert [one.name for one in file.parent.iterdir()] == [file.name]
        return file.read_bytes()


def named(server_url: str, name: str) -> str:
    """The URL of another database of the server."""
    return server_url.rpartition("/")[0] + "/" + name


def copy_database(server: psycopg.Connection, name: str, copy: str) -> None:
    """Copies a database that no process works on. Ends idle connections, which would forbid the copy."""
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
    )
    server.execute(_create(copy, name))


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
        _drop(server_url, name)


def _drop(server_url: str, name: str) -> None:
    try:
        with connected(server_url) as server:
            server.execute(_statement("DROP DATABASE IF EXISTS {} WITH (FORCE)", name))
    except psycopg.OperationalError:
        pass  # a test stopped the server: its data goes with its folder


def _copied(server_url: str, furnish: Furnish | None) -> _Kept:
    name = f"t_{uuid.uuid4().hex[:16]}"
    template = _template(server_url, furnish)
    with connected(server_url) as server:
        server.execute(_create(name, template))
    connection = connected(named(server_url, name))
    found = ledgers.known(connection, name)
    _identify(connection)
    return _Kept(found, connection)


def _of_kept(kept: list[_Kept]) -> _Kept | None:
    while kept:
        one = kept.pop()
        try:
            _identify(one.connection)
        except psycopg.OperationalError:  # its server was stopped
            one.connection.close()
            continue
        return one
    return None


def _emptied(one: _Kept) -> bool:
    try:
        return ledgers.emptied(one.connection, one.ledger)
    except psycopg.Error:
        return False


def _identify(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE ledger_identity SET id = %s", (secrets.token_hex(6),))


def _template(server_url: str, furnish: Furnish | None = None) -> str:
    """Its name; made by whoever comes first, and seen only when it is whole."""
    name = _template_name(furnish)
    base = "template1" if furnish is None else _template(server_url)
    with connected(server_url) as server:
        server.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        found = "SELECT 1 FROM pg_database WHERE datname = %s"
        if server.execute(found, (name,)).fetchone() is None:
            draft = f"{name}_draft"
            server.execute(_statement("DROP DATABASE IF EXISTS {} WITH (FORCE)", draft))
            server.execute(_create(draft, base))
            if furnish is None:
                upgrade(Settings(database=DatabaseSettings(url=named(server_url, draft))))
            else:
                furnish(named(server_url, draft))
            server.execute(_statement("ALTER DATABASE {} RENAME TO {}", draft, name))
    return name


def _template_name(furnish: Furnish | None = None) -> str:
    base = f"template_{datetime.now(UTC):%Y%m%d}_{_version()}"
    return base if furnish is None else f"{base}_{_digest(furnish)}"


@cache
def _digest(furnish: Furnish) -> str:
    """Changes with the function and its module."""
    text = Path(str(inspect.getsourcefile(furnish))).read_bytes()
    return hashlib.sha256(furnish.__qualname__.encode() + text).hexdigest()[:12]


@cache
def _version() -> str:
    """Changes with the migrations, with the indexes that they name, and with what makes partitions."""
    scripts = sorted(Path(str(migrations.__file__)).parent.rglob("*.py"))
    makers = [Path(str(one.__file__)) for one in (online_indexes, partitions)]
    texts = [path.read_bytes() for path in (*scripts, *makers)]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]


def _create(name: str, template: str) -> sql.Composed:
    return _statement("CREATE DATABASE {} TEMPLATE {}", name, template)


def _statement(text: str, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*map(sql.Identifier, names))
