"""The statements on a spool's file. Each method is one transaction and raises SpoolError."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from hongyan_client.records import Record
from hongyan_client.spool.file import PAGE_BYTES, SpoolFile
from hongyan_client.spool.locks import Marker
from hongyan_client.spool.rows import (
    SpooledRow,
    checksum,
    line_of,
    masked_message,
    packed_headers,
)
from hongyan_client.spool.schema import COLUMNS

KEPT_ENDED: Final = 10_000
"""Records that left without reaching Kafka and are still listed."""
EXPIRED: Final = "expired"
_EXPIRE_AT_ONCE: Final = 500
_ROWS: Final = f"SELECT {COLUMNS} FROM records"  # noqa: S608 - ours
_KEEP: Final = """
INSERT INTO records (line, topic, key, value, headers, kept_at, expires_at, checksum)
VALUES (:line, :topic, :key, :value, :headers, :now, :expires_at, :checksum)"""
# The next lines after one, by skips along the index, each with its first record.
_HEADS: Final = """
WITH RECURSIVE lines (line) AS (
    SELECT min(line) FROM records WHERE parked = 0 AND line > :after
    UNION ALL
    SELECT (SELECT min(line) FROM records WHERE parked = 0 AND line > lines.line) FROM lines
     WHERE lines.line IS NOT NULL LIMIT :count
)
SELECT line, (SELECT min(id) FROM records AS r WHERE r.parked = 0 AND r.line = lines.line)
  FROM lines WHERE line IS NOT NULL"""
_COUNT: Final = """
INSERT INTO counters (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"""
_END: Final = """
INSERT OR REPLACE INTO ended
  (id, topic, message_id, receivers, reason, attempts, last_error, kept_at, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_TRIM: Final = f"""
DELETE FROM ended WHERE id <= (SELECT id FROM ended ORDER BY id DESC LIMIT 1 OFFSET {KEPT_ENDED})"""  # noqa: S608 - ours


class KeptRecord(NamedTuple):
    """A record to keep, and its end in epoch milliseconds."""

    record: Record
    expires_at: int


class LineHead(NamedTuple):
    """The first record of a line."""

    line: bytes
    id: int


class DrainOutcome(NamedTuple):
    """Ends of some records' publishing: ids, and texts of errors by id."""

    published: Sequence[int] = ()
    failed: Mapping[int, str] = {}
    parked: Mapping[int, str] = {}


class StaleDrain(Exception):
    """Another process has drained since. Nothing was written."""


class SpoolCounts(NamedTuple):
    """Contents of a spool now, and its counts since its file was made."""

    waiting: int
    parked: int
    oldest_kept_at: int | None
    bytes: int
    last_id: int
    counters: Mapping[str, int]


class SpoolStore:
    """Three connections: callers that keep wait neither for a drain's statements nor for readers."""

    def __init__(self, keeper: SpoolFile, reader: SpoolFile, drainer: SpoolFile) -> None:
        self._keeper = keeper
        self._reader = reader
        self._drainer = drainer

    def keep(self, kept: Sequence[KeptRecord], marker: Marker, now_ms: int) -> None:
        """Puts records on disk, all or none, and sets the marker while no other process writes."""
        with self._keeper.transaction() as connection:
            marker.waiting, last = True, 0
            for one in kept:
                last = connection.execute(_KEEP, _values(one, now_ms)).lastrowid or 0
            connection.execute(_COUNT, ("kept", len(kept)))
        marker.last_id = last

    def holds(self, topic: str, key: bytes) -> bool:
        """Whether a record of this topic and key waits."""
        query = "SELECT 1 FROM records WHERE parked = 0 AND line = ? LIMIT 1"
        with self._reader.reading() as connection:
            return connection.execute(query, (line_of(topic, key),)).fetchone() is not None

    def has_waiting(self) -> bool:
        """Whether a record waits that is not parked."""
        query = "SELECT EXISTS (SELECT 1 FROM records WHERE parked = 0)"
        with self._reader.reading() as connection:
            return bool(connection.execute(query).fetchone()[0])

    def waiting(self) -> int:
        """Returns the number of records that wait and are not parked."""
        query = "SELECT count(*) FROM records WHERE parked = 0"
        with self._reader.reading() as connection:
            return int(connection.execute(query).fetchone()[0])

    def counts(self) -> SpoolCounts:
        """Returns the figures."""
        with self._reader.reading() as connection:
            query = "SELECT count(*) FILTER (WHERE parked = 0), count(*) FILTER (WHERE parked = 1)"
            query += ", min(kept_at) FROM records"
            waiting, parked, oldest = connection.execute(query).fetchone()
            pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
            counters = dict(connection.execute("SELECT name, value FROM counters").fetchall())
            last = connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()[0] or 0
        return SpoolCounts(waiting, parked, oldest, pages * PAGE_BYTES, last, counters)

    def rows(self, limit: int) -> list[SpooledRow]:
        """Returns the first records, in the order of their arrival."""
        with self._reader.reading() as connection:
            found = connection.execute(f"{_ROWS} ORDER BY id LIMIT ?", (limit,))
            return [SpooledRow(*row) for row in found]

    def ended(self, limit: int) -> list[tuple[Any, ...]]:
        """Returns the last records that left without reaching Kafka: the columns of the table ended."""
        with self._reader.reading() as connection:
            query = "SELECT * FROM ended ORDER BY ended_at DESC, id DESC LIMIT ?"
            return connection.execute(query, (limit,)).fetchall()

    def has_work(self, now_ms: int) -> bool:
        """Whether a record may go, or is past its time."""
        query = "SELECT EXISTS (SELECT 1 FROM records WHERE parked = 0 OR expires_at <= ?)"
        with self._reader.reading() as connection:
            return bool(connection.execute(query, (now_ms,)).fetchone()[0])

    def take_fence(self) -> int:
        """Returns a number for this drain. Statements of earlier drains change nothing from here on."""
        with self._drainer.transaction() as connection:
            connection.execute(_COUNT, ("fence", 1))
            return _fence(connection)

    def heads(self, after: bytes, count: int) -> list[LineHead]:
        """Returns the first record of each of the next lines after `after`, without its contents."""
        with self._drainer.reading() as connection:
            found = connection.execute(_HEADS, {"after": after, "count": count})
            return [LineHead(*row) for row in found]

    def rows_of(self, record_ids: Sequence[int]) -> dict[int, SpooledRow]:
        """Returns the records of these ids that are there, by id."""
        marks = ", ".join("?" * len(record_ids))
        query = f"{_ROWS} WHERE id IN ({marks})"  # marks alone are put in
        with self._drainer.reading() as connection:
            return {row[0]: SpooledRow(*row) for row in connection.execute(query, list(record_ids))}

    def settle(self, fence: int, outcome: DrainOutcome) -> None:
        """Removes published records, and notes the errors of others. Raises StaleDrain."""
        with self._fenced(fence) as connection:
            gone = connection.executemany(
                "DELETE FROM records WHERE id = ?", [(one,) for one in outcome.published]
            )
            if outcome.published:
                connection.execute(_COUNT, ("drained", max(0, gone.rowcount)))
            for parked, errors in ((0, outcome.failed), (1, outcome.parked)):
                connection.executemany(
                    "UPDATE records SET attempts = attempts + 1, last_error = ?, parked = ? "
                    "WHERE id = ?",
                    [(text, parked, one) for one, text in errors.items()],
                )

    def expire(self, fence: int, now_ms: int) -> int:
        """Ends records past their time, and lists them. Returns how many. Raises StaleDrain."""
        with self._fenced(fence) as connection:
            query = f"{_ROWS} WHERE expires_at <= ? ORDER BY expires_at LIMIT {_EXPIRE_AT_ONCE}"
            rows = [SpooledRow(*row) for row in connection.execute(query, (now_ms,)).fetchall()]
            connection.executemany("DELETE FROM records WHERE id = ?", [(one.id,) for one in rows])
            connection.executemany(_END, [_ended(one, now_ms) for one in rows])
            if rows:
                connection.execute(_COUNT, (EXPIRED, len(rows)))
                connection.execute(_TRIM)
        return len(rows)

    def unpark(self, fence: int) -> int:
        """Lets parked records go again. Returns how many. Raises StaleDrain."""
        with self._fenced(fence) as connection:
            return connection.execute("UPDATE records SET parked = 0 WHERE parked = 1").rowcount

    def mark_empty(self, marker: Marker) -> None:
        """Clears the marker if no record waits. No other process keeps a record meanwhile."""
        with self._drainer.transaction() as connection:
            if connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None:
                marker.waiting = False

    def count(self, name: str, number: int = 1) -> None:
        """Adds to a counter."""
        with self._drainer.transaction() as connection:
            connection.execute(_COUNT, (name, number))

    def close(self) -> None:
        """Closes the connections; idempotent."""
        for one in (self._keeper, self._reader, self._drainer):
            one.close()

    @contextmanager
    def _fenced(self, fence: int) -> Iterator[sqlite3.Connection]:
        with self._drainer.transaction() as connection:
            if _fence(connection) != fence:
                raise StaleDrain
            yield connection


def _fence(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM counters WHERE name = 'fence'").fetchone()
    return int(row[0]) if row else 0


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _values(kept: KeptRecord, now_ms: int) -> dict[str, Any]:
    record, headers = kept.record, packed_headers(kept.record)
    return {
        "line": line_of(record.topic, record.key),
        "topic": record.topic,
        "key": record.key,
        "value": record.value,
        "headers": headers,
        "now": now_ms,
        "expires_at": kept.expires_at,
        "checksum": checksum(record.topic, record.key, record.value, headers, kept.expires_at),
    }


def _ended(row: SpooledRow, now_ms: int) -> tuple[Any, ...]:
    shown = masked_message(row.value if row.intact else b"")
    return (
        *(row.id, row.topic or "", shown.message_id, shown.receivers, EXPIRED),
        *(row.attempts or 0, row.last_error or "", row.kept_at or now_ms, now_ms),
    )
