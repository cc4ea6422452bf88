"""Trace events into the ledger's database: one COPY (PostgreSQL) or one insert (SQLite) per flush.

The sink makes each day's partition and removes days past `trace.keep_days`, once a day by the database's
clock. No event's time decides about that: its host's clock may be wrong. Commits are asynchronous: a server
that crashes may forget the last moments of the trace, never of the ledger.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any, Final

import structlog

from backends.settings import Settings
from backends.sql.database import Database, database_url
from backends.sql.errors import SqlError, SqlTimeout, judged
from tracing.drops import Drops
from tracing.events import TraceEvent
from tracing.recorder import Sink, SinkAway
from tracing.rows import DAY_MS, Row, copy_text, rows_of

log = structlog.get_logger(__name__)

INSERT: Final = "INSERT INTO trace_events (day, at, message_id, events) VALUES (?, ?, ?, ?)"
COPY: Final = "COPY trace_events (day, at, message_id, events) FROM STDIN"
CLOCK_S: Final = 600.0
"""Time after which the database is asked for its clock again; a partition is made a day ahead."""
_NOW: Final = "SELECT hongyan_now()"
_PARTITIONS: Final = """
SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'trace_events'::regclass"""
_LOCK_WAIT: Final = "300ms"
"""Longest wait for the locks of a partition. A long reader, such as a backup, has them for hours, and every
other writer would wait behind this process."""
_OLDEST: Final = "SELECT rowid, day FROM trace_events WHERE rowid > ? ORDER BY rowid LIMIT ?"
_DELETE: Final = "DELETE FROM trace_events WHERE rowid = ?"
_PAGE: Final = 1_000
"""Rows that SQLite deletes in one transaction: the ledger's writers wait for it."""
_PAGES: Final = 50
"""Pages of one look; the next look goes on."""
_LOCK: Final = 0x686F6E7974726163
_EPOCH = date(1970, 1, 1)
_NAME = re.compile(r"trace_events_\d{8}")


def open_database_sink(settings: Settings, _drops: Drops) -> Sink:
    """Returns a sink with a connection of its own."""
    database = Database(database_url(settings.database.url, settings.base), pool_size=1)
    return DatabaseSink(database, settings.trace.keep_days)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class DatabaseSink:
    """Used by one thread."""

    def __init__(
        self,
        database: Database,
        keep_days: int,
        *,
        now_ms: Callable[[], int] = _wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_ms` is SQLite's clock, epoch milliseconds; PostgreSQL has its own. `monotonic`: seconds."""
        self._database = database
        self._keep_days = keep_days
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._day = -1
        """The database's day since the epoch; -1: not asked yet."""
        self._prepared = -1
        """The day whose partition was made, and whose old days were removed; -1: none yet."""
        self._ask_at = monotonic()

    def write(self, events: Sequence[TraceEvent]) -> None:
        """Inserts the batch. Raises SinkAway while the database is away or has no trace table."""
        with _away(), self._database.connection() as connection:
            self._follow_day(connection)
            rows = self._dated(rows_of(events))
            if self._database.is_postgres:
                _copy(connection, rows)
            else:
                _insert(connection, rows)

    def close(self, timeout_s: float, last: bool = False) -> None:
        """Gives the connection back; nothing is under way between two writes."""
        self._database.close()

    def _follow_day(self, connection: Any) -> None:
        """Asks for the database's day, at times, and prepares a new one."""
        if self._monotonic() < self._ask_at:
            return
        self._day = self._today(connection)
        self._ask_at = self._monotonic() + CLOCK_S
        if self._day != self._prepared and self._prepare_day(connection, self._day):
            self._prepared = self._day

    def _today(self, connection: Any) -> int:
        if self._database.is_postgres:
            return int(connection.execute(_NOW).fetchone()[0]) // DAY_MS
        return self._now_ms() // DAY_MS

    def _dated(self, rows: Iterable[Row]) -> list[Row]:
        """Returns the rows; one whose own day is past its time or not near is under today, since its clock
        was wrong."""
        # The database's next day may have begun since it was asked.
        today, first, last = self._day, self._day - self._keep_days, self._day + 1
        return [row if first <= row.day <= last else row._replace(day=today) for row in rows]

    def _prepare_day(self, connection: Any, day: int) -> bool:
        """Returns False if a later look must go on."""
        oldest = day - self._keep_days
        if not self._database.is_postgres:
            return _delete_old(connection, oldest, day)
        # A failed step undoes no other. The default partition takes the rows all the same.
        tried = [_try(connection, _make_partition, coming) for coming in (day, day + 1)]
        tried += [_try(connection, step, oldest) for step in (_drop_partitions, _empty_default)]
        return all(tried)


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


def _delete_old(connection: Any, oldest: int, today: int) -> bool:
    """Deletes rows of earlier days from SQLite, page by page. Returns False if there may be more.

    Rows are in the order of their days, but for those that were written under a wrong clock: days to come
    are passed over, and the first page of days that are kept is the end."""
    after = -1
    for _ in range(_PAGES):
        page = connection.execute(_OLDEST, (after, _PAGE)).fetchall()
        old = [(rowid,) for rowid, day in page if day < oldest]
        if old:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_DELETE, old)
            connection.execute("COMMIT")
        elif any(day <= today + 1 for _, day in page):
            return True
        if len(page) < _PAGE:
            return True
        after = page[-1][0]
    return False


def _try(connection: Any, step: Callable[[Any, int], None], day: int) -> bool:
    """Does the step in a transaction of its own; logs what it raises. Returns False if a lock was not
    free."""
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")
            step(connection, day)
    except Exception as exc:
        free = not isinstance(judged(exc), SqlTimeout)
        cause = str(exc).partition("\n")[0]
        log.warning(
            "trace_partitions_not_made", step=step.__name__.strip("_"), day=day, cause=cause
        )
        return free
    return True


def _make_partition(connection: Any, day: int) -> None:
    """Makes the day's partition. Raises if the default partition has rows of that day, which stay there."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_name(day)} PARTITION OF trace_events FOR VALUES IN ({day})"
    )


def _drop_partitions(connection: Any, oldest: int) -> None:
    for (name,) in connection.execute(_PARTITIONS).fetchall():
        if _NAME.fullmatch(name) and name < _name(oldest):
            connection.execute(f"DROP TABLE {name}")


def _empty_default(connection: Any, oldest: int) -> None:
    connection.execute("DELETE FROM trace_events_default WHERE day < %s", (oldest,))


def _name(day: int) -> str:
    return f"trace_events_{_EPOCH + timedelta(days=day):%Y%m%d}"
