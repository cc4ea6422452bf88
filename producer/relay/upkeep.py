"""Keeps the table small: days ahead are made, past days are dropped (past_days.py), and where there are no
partitions ended rows are deleted in batches. Dead rows are what makes a queue table slow.

A user that does not own the partitions makes and drops none: it deletes ended rows through their parent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date
from typing import Final

import structlog
from sqlalchemy import TextClause, bindparam, select, text

from hongyan_client.outbox.clock import NOW_MS, DatabaseDay, spelling
from hongyan_client.outbox.errors import OutboxForbidden, OutboxTrouble
from hongyan_client.outbox.partitions import (
    is_alone,
    make_ahead,
    owns_partitions,
)
from hongyan_client.outbox.store import OutboxStore
from producer.relay.past_days import PastDays

log = structlog.get_logger(__name__)
EVERY_S: Final = 60.0
BATCH: Final = 1_000
_MOST_BATCHES: Final = 50
"""Batches of one look; the next look goes on."""
_HOUR_MS: Final = 3_600_000
_IDS: Final = """
SELECT id FROM {deleted} WHERE state IN ('SENT', 'RECALLED') AND done_at < {now} - :keep_ms{past}
 LIMIT :batch"""
_PAST: Final = """
   AND created_day <= CAST(to_timestamp(({now} - :keep_ms) / 1000) AT TIME ZONE 'utc' AS date)"""
"""Spares the later partitions: no row ended before its day."""
_DELETE: Final = "DELETE FROM {deleted} WHERE id IN :ids"
_ALERTS: Final = "DELETE FROM {t}_alerts WHERE told_at < {now} - :keep_ms"
_ALERT_DAYS: Final = 30


class OutboxUpkeep:
    """Its own thread calls `run`; several relays may do it at once."""

    def __init__(self, store: OutboxStore, keep_hours: int, stop: threading.Event) -> None:
        self._store = store
        self._keep_hours = keep_hours
        self._stop = stop
        self._past_days = PastDays(store, keep_hours, stop)
        self._told: set[str] = set()  # errors in the log; this thread writes it
        self._owned = (
            True  # on PostgreSQL: whether days may be made and dropped; `run_once` writes it
        )

    def run(self) -> None:
        """Looks once a minute until `stop` is set."""
        while not self._stop.is_set():
            try:
                self.run_once()
            except OutboxTrouble as exc:
                self._tell("upkeep_not_done", str(exc))
            self._stop.wait(EVERY_S)

    def run_once(self) -> None:
        """Does all that is due, but what the database's user has no right to."""
        if self._store.is_postgres:
            self._look_for_owner()
            if self._owned:
                self._permitted(self._make_days)
                self._permitted(self._past_days.look)
        self._permitted(self._delete_rows)
        self._permitted(self._delete_alerts)

    def delete_batch(self) -> int:
        """Deletes a batch of ended rows: of owned partitions only those in the default one. Returns their
        number."""
        asked = {"keep_ms": self._keep_hours * _HOUR_MS, "batch": BATCH}
        ids = self._sql(_IDS)
        with self._store.transaction() as connection:
            found = list(connection.execute(ids, asked).scalars())
            if found:
                gone = self._sql(_DELETE).bindparams(bindparam("ids", expanding=True))
                connection.execute(gone, {"ids": found})
        return len(found)

    def _permitted(self, step: Callable[[], None]) -> None:
        """Takes one step. A right that is missing is logged once, and the next step follows."""
        try:
            step()
        except OutboxForbidden as exc:
            self._tell("upkeep_not_permitted", str(exc))

    def _look_for_owner(self) -> None:
        with self._store.transaction() as connection:
            self._owned = owns_partitions(connection, self._store.name)
        if not self._owned:
            cause = (
                f"the database's user does not own {self._store.name} and its partitions: none is made"
                " or dropped, and ended rows are deleted in batches"
            )
            self._tell("partitions_not_owned", cause)

    def _delete_rows(self) -> None:
        for _ in range(_MOST_BATCHES):
            if self._stop.is_set() or self.delete_batch() < BATCH:
                break

    def _delete_alerts(self) -> None:
        with self._store.transaction() as connection:
            connection.execute(self._sql(_ALERTS), {"keep_ms": _ALERT_DAYS * 24 * _HOUR_MS})

    def _make_days(self) -> None:
        with self._store.transaction() as connection:
            if is_alone(connection, self._store.name):
                today: date = connection.execute(select(DatabaseDay())).scalar_one()
                for error in make_ahead(connection, self._store.name, today):
                    self._tell("partition_not_made", error)

    def _tell(self, event: str, cause: str) -> None:
        if cause not in self._told:
            self._told.add(cause)
            log.warning(event, cause=cause)

    def _sql(self, template: str) -> TextClause:
        name, now = self._store.name, NOW_MS[spelling(self._store.engine.dialect.name)]
        deleted, past = name, ""
        if self._store.is_postgres and self._owned:
            deleted = f"{name}_default"
        elif self._store.is_postgres:
            past = _PAST.format(now=now)
        return text(template.format(t=name, deleted=deleted, now=now, past=past))
