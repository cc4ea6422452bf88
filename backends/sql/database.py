"""The SQL databases: PostgreSQL through psycopg 3, or one SQLite file. Errors: backends.sql.errors."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy import exc as sa
from sqlalchemy.engine import URL, make_url

from backends.sql.errors import SqlAway, SqlPoolBusy, SqlTimeout, judged
from backends.sql.fair_pool import FairPool

BUSY_MS: Final = 5_000
"""Longest wait of a statement for a lock."""
STATEMENT_MS: Final = 10_000
"""Longest time that the server works on a statement."""
ANSWER_S: Final = 12.0
"""Longest wait for an answer: a frozen server keeps its connections and enforces no limits."""
CONNECT_S: Final = 5
_LOOK_S: Final = 0.01
"""Time between two tries to give a new SQLite file its write-ahead log."""
_MAX_PORT: Final = 65_535
DEAD_PEER_MS: Final = 6_000
"""Time after which a connection with unacknowledged bytes counts as dead."""

_CONNECT: Final[Mapping[str, str | int]] = {
    "connect_timeout": CONNECT_S,
    "application_name": "hongyan",
    "keepalives": 1,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": DEAD_PEER_MS,
}
"""Options of libpq, where the URL names no other value."""
_SESSION = {
    "default_transaction_isolation": "read committed",
    "lock_timeout": str(BUSY_MS),
    "statement_timeout": str(STATEMENT_MS),
    "idle_in_transaction_session_timeout": str(STATEMENT_MS),
}
# The ledger finds every row by an index, in batches of known size. Statistics may be a minute old: a plan
# that was right for an empty partition must not survive into a full one. So the planner gets no other
# choice, and does not plan again for every batch (docs/decisions/012).
_FIXED_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_material": "off",
    "jit": "off",
}

_KEPT_PLANS = {"plan_cache_mode": "force_generic_plan", "jit": "off"}


def database_url(url: str, base: str | Path = ".") -> URL:
    """Returns the URL with our driver; a relative SQLite file is in `base`. Raises ValueError."""
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    except (sa.ArgumentError, ValueError):
        raise ValueError("it cannot be read: write postgresql://… or sqlite:///FILE") from None
    backend = parsed.get_backend_name()
    if "@" in (parsed.host or ""):  # errors of a connection would show the rest of the password
        raise ValueError("an @ in its password is written %40")
    if parsed.port is not None and not 0 < parsed.port <= _MAX_PORT:
        raise ValueError(f"there are ports from 1 to {_MAX_PORT}")
    if backend == "postgresql":
        return _checked(parsed.set(drivername="postgresql+psycopg"))
    if backend != "sqlite":
        raise ValueError(f"{backend} is not supported: use postgresql://… or sqlite:///FILE")
    if not parsed.database or parsed.database == ":memory:":
        raise ValueError("an SQLite ledger needs a file: sqlite:///hongyan.db")
    if parsed.host or parsed.query or "\0" in parsed.database:
        raise ValueError("an SQLite ledger takes a file and no more: sqlite:///hongyan.db")
    return parsed.set(drivername="sqlite", database=str(Path(base) / parsed.database))


def _checked(url: URL) -> URL:
    """Returns the same URL. Raises ValueError, with the name alone, for an option that libpq lacks."""
    try:
        _, options = url.get_dialect()().create_connect_args(url)
        make_conninfo("", **options)
    except psycopg.ProgrammingError as exc:
        raise ValueError(f"libpq does not take it: {str(exc).strip()}") from None
    except (TypeError, ValueError):
        raise ValueError("its options cannot be read") from None
    return url


def masked(url: str | URL) -> str:
    """Returns the URL for logs and errors, without password and query."""
    try:
        parsed = make_url(url)
        host = (parsed.host or "").rpartition("@")[2]  # what is before it is of the password
        return parsed.set(query={}, host=host or None).render_as_string(hide_password=True)
    except (sa.ArgumentError, ValueError):
        return "a URL that cannot be read"


class Database:
    """A pool of driver connections in autocommit; a failed connection is replaced.

    `hot` is for the ledger's own few statements: fixed plans, see `_FIXED_PLANS`. Connections are
    not pinged before use: a dead one costs one SqlAway, which every caller repeats. `statement_ms` ends a
    statement on PostgreSQL. `keeps_plans` is for pages: a statement is planned once a connection, since a
    plan over all days costs more than its execution (decision 207). Such a pool closes no connection that
    works: threads beyond `pool_size` wait (decision 288).
    """

    def __init__(
        self,
        url: URL,
        *,
        hot: bool = False,
        pool_size: int = 4,
        statement_ms: int = STATEMENT_MS,
        keeps_plans: bool = False,
    ) -> None:
        self.url = url
        self.is_postgres = url.get_backend_name() == "postgresql"
        self._generation = 0  # `_reraise` of any thread adds to it; a race renews twice
        self._closed = False  # written by `close` alone
        self.engine = (
            _postgres(url, hot, keeps_plans, pool_size, statement_ms)
            if self.is_postgres
            else _sqlite(url, pool_size)
        )
        event.listen(self.engine, "connect", self._stamp)
        event.listen(self.engine, "checkout", self._check)
        event.listen(self.engine, "checkin", self._close_late)

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Yields a driver connection (psycopg's or sqlite3's). Raises SqlError.

        After SqlAway no earlier connection is used again: all of them led to the same server. The others
        stay after SqlTimeout, since that server answers, and after SqlPoolBusy, which tells nothing of it.
        """
        with self.errors():
            pooled = self.engine.raw_connection()
        try:
            yield pooled.driver_connection
        except BaseException as exc:
            pooled.invalidate()
            self._reraise(exc)
        finally:
            pooled.close()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Yields a SQLAlchemy connection in a transaction; on SQLite the only writer. Raises SqlError."""
        with self.errors(), self.engine.connect() as connection:
            if self.is_postgres:
                connection.execution_options(isolation_level="READ COMMITTED")
            with connection.begin():
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a SQLAlchemy connection for reads that need no common transaction. Raises SqlError.

        On PostgreSQL each statement is a transaction of its own, without the two round trips of BEGIN and
        COMMIT. On SQLite as `begin`.
        """
        if not self.is_postgres:
            with self.begin() as connection:
                yield connection
            return
        with self.errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Maps errors of SQLAlchemy's own connections (`engine.connect()`) likewise."""
        try:
            yield
        except (sa.SQLAlchemyError, psycopg.Error, sqlite3.Error) as exc:
            self._reraise(exc)

    def close(self) -> None:
        """Closes the pool's idle connections, and those in use when they come back; idempotent."""
        self._closed = True
        self.engine.dispose()

    def _reraise(self, exc: BaseException) -> None:
        error = judged(exc)
        if isinstance(error, SqlAway) and not isinstance(error, SqlTimeout | SqlPoolBusy):
            self._generation += 1
        if error is exc:
            raise exc
        raise error from exc

    def _stamp(self, _connection: object, record: Any) -> None:
        record.info["generation"] = self._generation

    def _check(self, _connection: object, record: Any, _proxy: object) -> None:
        if record.info["generation"] != self._generation:
            raise sa.DisconnectionError  # the pool's word for "make a new one"

    def _close_late(self, _connection: object, record: Any) -> None:
        if self._closed:
            record.invalidate()


def _postgres(url: URL, hot: bool, keeps_plans: bool, pool_size: int, statement_ms: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=FairPool,
        pool_size=pool_size,
        max_overflow=0 if keeps_plans else pool_size,
        pool_timeout=BUSY_MS / 1000,
        pool_reset_on_return=None,
        pool_use_lifo=True,
        hide_parameters=True,
        isolation_level="AUTOCOMMIT",
        # SQLAlchemy gives the driver the URL's own options, several hosts in libpq's form.
        connect_args={name: value for name, value in _CONNECT.items() if name not in url.query},
    )
    plans = _FIXED_PLANS if hot else _KEPT_PLANS if keeps_plans else {}
    session = _SESSION | {"statement_timeout": str(statement_ms)} | plans
    event.listen(engine, "connect", lambda connection, _record: _prepare(connection, session))
    if keeps_plans:
        event.listen(engine, "connect", _prepare_statements_at_once)
    if hot:
        event.listen(engine, "do_connect", _connect_impatiently)
    return engine


class _Impatient(psycopg.Connection[Any]):
    """Gives up on a server that does not answer; the connection is of no use afterwards."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, ANSWER_S if timeout is None else timeout)


def _connect_impatiently(_dialect: object, _record: object, _args: object, named: Any) -> Any:
    return _Impatient.connect(**named)


def _prepare(connection: psycopg.Connection[Any], session: dict[str, str]) -> None:
    """Sets the session, whatever the defaults of the server and the role are."""
    connection.autocommit = True
    settings = ", ".join(["set_config(%s, %s, false)"] * len(session))
    connection.execute(f"SELECT {settings}", [text for pair in session.items() for text in pair])
    # A commit that a crash may undo would break every promise made after it.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') = 'off'"
    )


def _prepare_statements_at_once(connection: psycopg.Connection[Any], _record: object) -> None:
    """Lets a statement's first execution keep its plan, unless the URL forbids prepared statements."""
    if connection.prepare_threshold is not None:
        connection.prepare_threshold = 0


def _sqlite(url: URL, pool_size: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=FairPool,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=BUSY_MS / 1000,
        pool_reset_on_return=None,
        hide_parameters=True,
        connect_args={
            "timeout": BUSY_MS / 1000,
            "isolation_level": None,
            "check_same_thread": False,
        },
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_as_writer)
    return engine


def _begin_as_writer(connection: Connection) -> None:
    """Begins a transaction of SQLite's one writer; none in autocommit, where readers do not wait for it."""
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Gives a new file its write-ahead log. Where another connection has begun to write the file, SQLite
    gives up at once, whatever its time limit is."""
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_LOOK_S)
        else:
            return
