"""Trace events into the ledger's database: one COPY (PostgreSQL) or one insert (SQLite) per flush.

The sink makes each day's partition and removes days past `trace.keep_days`, once a day. Its commits
are asynchronous: a server that crashes may forget the last moments of the trace, never of the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any, Final

import structlog

from backends.settings import Settings
from backends.sql.database import Database, database_url
from backends.sql.errors import SqlError
from tracing.drops import Drops
from tracing.events import TraceEvent
from tracing.recorder import Sink, SinkAway
from tracing.rows import Row, copy_text, rows_of

log = structlog.get_logger(__name__)

INSERT: Final = "INSERT INTO trace_events (day, at, message_id, events) VALUES (?, ?, ?, ?)"
COPY: Final = "COPY trace_events (day, at, message_id, events) FROM STDIN"
_PARTITIONS: Final = """
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'trace_events'::regclass"""
_LOCK: Final = 0x686F6E7974726163
_EPOCH = date(1970, 1, 1)
_NAME = re.compile(r"trace_events_\d{8}")


def open_database_sink(settings: Settings, _drops: Drops) -> Sink:
    """Returns a sink with a connection of its own."""
    database = Database(database_url(settings.database.url, settings.base), pool_size=1)
    return DatabaseSink(database, settings.trace.keep_days)


class DatabaseSink:
    """Used by one thread."""

    def __init__(self, database: Database, keep_days: int) -> None:
        self._database = database
        self._keep_days = keep_days
        self._prepared_day = -1

    def write(self, events: Sequence[TraceEvent]) -> None:
        """Inserts the batch. Raises SinkAway while the database is away or has no trace table."""
        rows = rows_of(events)
        with _away(), self._database.connection() as connection:
            if rows[0].day != self._prepared_day:
                self._prepare_day(connection, rows[0].day)
            if self._database.is_postgres:
                _copy(connection, rows)
            else:
                _insert(connection, rows)

    def close(self, timeout_s: float, last: bool = False) -> None:
        """Gives the connection back; nothing is under way between two writes."""
        self._database.close()

    def _prepare_day(self, connection: Any, day: int) -> None:
        self._prepared_day = day
        oldest = day - self._keep_days
        if not self._database.is_postgres:
            connection.execute("DELETE FROM trace_events WHERE day < ?", (oldest,))
            return
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                _make_partitions(connection, day)
                _drop_partitions(connection, oldest)
        except Exception as exc:  # the default partition takes the rows all the same
            log.warning("trace_partitions_not_made", cause=str(exc).partition("\n")[0])


@contextmanager
def _away() -> Iterator[None]:
    try:
        yield
    except SqlError as exc:
        raise SinkAway(str(exc)) from exc


def _copy(connection: Any, rows: Sequence[Row]) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = off")
        with connection.cursor().copy(COPY) as copy:
            copy.write(copy_text(rows))


def _insert(connection: Any, rows: Sequence[Row]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, rows)
    connection.execute("COMMIT")


def _make_partitions(connection: Any, day: int) -> None:
    for coming in (day, day + 1):
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_name(coming)} PARTITION OF trace_events"
            f" FOR VALUES IN ({coming})"
        )


def _drop_partitions(connection: Any, oldest: int) -> None:
    for (name,) in connection.execute(_PARTITIONS).fetchall():
        if _NAME.fullmatch(name) and name < _name(oldest):
            connection.execute(f"DROP TABLE {name}")


def _name(day: int) -> str:
    return f"trace_events_{_EPOCH + timedelta(days=day):%Y%m%d}"
