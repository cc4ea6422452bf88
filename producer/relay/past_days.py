"""Past days of PostgreSQL's outbox: each leaves as a whole once its rows ended `relay.keep_hours` ago.

Open rows would keep a day, and every claim plans over every day. So rows that wait move to today's
partition, a bounded number a look. A day that still has open rows stays, as in an outage of Kafka or with
very many delayed ones. Its ended rows are deleted in pages.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import structlog
from sqlalchemy import select

from hongyan_client.outbox.clock import DatabaseDay, DatabaseMillis
from hongyan_client.outbox.errors import OutboxForbidden, OutboxMissing, OutboxTrouble
from hongyan_client.outbox.partitions import (
    PAGE_ROWS,
    DayPartition,
    drop_day,
    ended_page,
    has_open_row,
    is_alone,
    lock_for_drop,
    lock_for_move,
    movable_rows,
    move_to_day,
    partitions_of,
)
from hongyan_client.outbox.store import OutboxStore

log = structlog.get_logger(__name__)
MOST_LOCKS: Final = 20
"""Locks of the whole table in one look; the next look goes on."""
MOST_REFUSALS: Final = 2
"""Locks that were not free in one look: a long transaction is under way, and others queue behind it."""
MOST_MOVED: Final = 1_000
"""Rows that move in one look: a day's worth is 1.4 million."""
MOST_PAGES: Final = 10
"""Pages in which one look deletes rows."""
_HOUR_MS: Final = 3_600_000


@dataclass(slots=True)
class _DayNotes:
    """Notes of this process about one past day; the upkeep's thread writes it."""

    deleted_to: int = 0
    """Id up to which old rows are deleted."""
    delete_from: int = 0
    """Database time of the next deletion."""
    read_from: int = 0
    """Database time before which a row ended too short a time ago."""
    kept_long_enough: bool = False
    """Whether every row was read, and all ended `keep_hours` ago."""


class PastDays:
    """The upkeep's thread calls `look`. Relays may do it at the same time."""

    def __init__(self, store: OutboxStore, keep_hours: int, stop: threading.Event) -> None:
        self._store = store
        self._keep_hours = keep_hours
        self._keep_ms = keep_hours * _HOUR_MS
        self._stop = stop
        self._notes: dict[str, _DayNotes] = {}
        # The next four are of one look; the upkeep's thread writes them.
        self._locks = 0
        self._refusals = 0
        self._moved = 0
        self._pages = 0

    def look(self) -> None:
        """Looks at each past day, the oldest first. Raises OutboxForbidden, and OutboxTrouble if the
        partitions cannot be listed."""
        self._locks = self._refusals = self._moved = self._pages = 0
        today, days = self._days()
        self._notes = {one.name: self._notes.get(one.name, _DayNotes()) for one in days}
        for day in days:
            if self._stop.is_set():
                return
            try:
                self._look_at(day, today)
            except OutboxForbidden:
                raise
            except OutboxMissing:
                continue  # another relay has dropped it
            except OutboxTrouble as exc:
                log.info("partition_not_dropped", partition=day.name, cause=str(exc))

    def _days(self) -> tuple[date, Sequence[DayPartition]]:
        """Returns today, and the days that ended at least `keep_hours` ago."""
        kept = timedelta(days=1 + -(-self._keep_hours // 24))
        with self._store.transaction() as connection:
            today: date = connection.execute(select(DatabaseDay())).scalar_one()
            there = partitions_of(connection, self._store.name)
        return today, [one for one in there if one.day <= today - kept]

    def _look_at(self, day: DayPartition, today: date) -> None:
        """The first looks take no lock that others wait for."""
        notes = self._notes[day.name]
        if self._is_open(day):
            self._move(day, today)
        if self._is_open(day):
            notes.kept_long_enough = False
            self._delete_old(day, notes)
        elif self._all_old(day, notes):
            self._drop(day)

    def _is_open(self, day: DayPartition) -> bool:
        with self._store.transaction() as connection:
            return has_open_row(connection, day)

    def _move(self, day: DayPartition, today: date) -> None:
        """Moves rows that wait to today's partition."""
        left = MOST_MOVED - self._moved
        if not left or not self._may_lock:
            return
        with self._store.transaction() as connection:
            ids = movable_rows(connection, day, left)
        if not ids:
            return
        name = self._store.name
        with self._store.transaction() as connection:
            if is_alone(connection, name) and self._granted(lock_for_move(connection, name), day):
                self._moved += move_to_day(connection, name, day, today, ids)

    def _delete_old(self, day: DayPartition, notes: _DayNotes) -> None:
        """Deletes rows that ended long enough ago, page by page; after the last page not for an hour."""
        if self._now() < notes.delete_from:
            return
        while self._pages < MOST_PAGES and not self._stop.is_set():
            self._pages += 1
            with self._store.transaction() as connection:
                page = ended_page(connection, day, notes.deleted_to, self._keep_ms, delete=True)
            notes.deleted_to = page.last_id
            if page.rows < PAGE_ROWS:
                notes.deleted_to, notes.delete_from = 0, page.now + _HOUR_MS
                return

    def _all_old(self, day: DayPartition, notes: _DayNotes) -> bool:
        """Returns whether all rows of a day without an open one ended long enough ago. Reads each row once:
        a row that was open for days may have ended just now, and PostgreSQL has no index on `done_at`."""
        if not self._keep_ms or notes.kept_long_enough:
            return True
        if self._now() < notes.read_from:
            return False
        last_id = 0
        while not self._stop.is_set():
            with self._store.transaction() as connection:
                page = ended_page(connection, day, last_id, self._keep_ms, delete=False)
            last_id = page.last_id
            if page.newest_end >= page.now - self._keep_ms:
                notes.read_from = page.newest_end + self._keep_ms
                return False
            if page.rows < PAGE_ROWS:
                notes.kept_long_enough = True
                return True
        return False

    def _drop(self, day: DayPartition) -> None:
        if not self._may_lock:
            return
        name = self._store.name
        with self._store.transaction() as connection:
            if not is_alone(connection, name):
                return
            if not self._granted(lock_for_drop(connection, name, day), day):
                return
            if has_open_row(connection, day):
                return
            drop_day(connection, day)
        log.info("partition_dropped", partition=day.name)

    def _granted(self, locked: bool, day: DayPartition) -> bool:
        """Counts a lock. Returns whether it was granted."""
        self._locks += 1
        if not locked:
            self._refusals += 1
            log.info("partition_not_dropped", partition=day.name, cause="a lock was not free")
        return locked

    @property
    def _may_lock(self) -> bool:
        return self._locks < MOST_LOCKS and self._refusals < MOST_REFUSALS

    def _now(self) -> int:
        with self._store.transaction() as connection:
            return int(connection.execute(select(DatabaseMillis())).scalar_one())
