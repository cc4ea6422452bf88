"""Drops days of PostgreSQL's outbox that are past `relay.keep_hours`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import structlog
from sqlalchemy import select

from hongyan_client.outbox.clock import DatabaseDay
from hongyan_client.outbox.errors import OutboxForbidden, OutboxMissing, OutboxTrouble
from hongyan_client.outbox.partitions import (
    DayPartition,
    drop_day,
    has_open_row,
    is_alone,
    lock_for_drop,
    partitions_of,
)
from hongyan_client.outbox.store import OutboxStore

log = structlog.get_logger(__name__)
MOST_LOCKS: Final = 20
"""Locks of the whole table in one look; the next look goes on."""
MOST_REFUSALS: Final = 2
"""Locks that were not free in one look: a long transaction is under way, and others queue behind it."""


class PastDays:
    """The upkeep's thread calls `look`. Relays may do it at the same time."""

    def __init__(self, store: OutboxStore, keep_hours: int, stop: threading.Event) -> None:
        self._store = store
        self._keep_hours = keep_hours
        self._stop = stop
        self._locks = 0  # taken in this look; the upkeep's thread writes it
        self._refusals = 0  # the same of locks that were not free

    def look(self) -> None:
        """Looks at each past day, the oldest first. Raises OutboxForbidden, and OutboxTrouble if the
        partitions cannot be listed."""
        self._locks = self._refusals = 0
        for day in self._days():
            if self._stop.is_set() or self._spent:
                return
            try:
                self._drop(day)
            except OutboxForbidden:
                raise
            except OutboxMissing:
                continue  # another relay has dropped it
            except OutboxTrouble as exc:
                log.info("partition_not_dropped", partition=day.name, cause=str(exc))

    def _days(self) -> Sequence[DayPartition]:
        """Returns the days that ended at least `keep_hours` ago."""
        kept = timedelta(days=1 + -(-self._keep_hours // 24))
        with self._store.transaction() as connection:
            today: date = connection.execute(select(DatabaseDay())).scalar_one()
            there = partitions_of(connection, self._store.name)
        return [one for one in there if one.day <= today - kept]

    def _drop(self, day: DayPartition) -> None:
        """Drops a day in which every row has ended. The first look takes no lock that others wait for."""
        name = self._store.name
        with self._store.transaction() as connection:
            if has_open_row(connection, day):
                return
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
    def _spent(self) -> bool:
        return self._locks >= MOST_LOCKS or self._refusals >= MOST_REFUSALS
