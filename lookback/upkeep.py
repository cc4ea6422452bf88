"""Upkeep of the table, in a thread of its own: coming days' partitions, and the archive of past days.

One process of the fleet archives at a time, under a duty. A day with an open row stays whole.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog

from backends.settings import Settings
from idempotency.archive.contract import DayOpen, NotAllowed, date_of
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerError
from idempotency.partitions import LOOKBACK_TABLES, ensure_partitions
from idempotency.sql_ledger import SqlLedger
from lookback.archive import TransactionArchive, open_archive

log = structlog.get_logger(__name__)
DUTY: Final = "lookback_archive"
LEASE_MS: Final = 600_000
EVERY_S: Final = 3_600.0
_AGAIN_S: Final = 60.0


class LookbackUpkeep:
    """`run` is one thread's; any thread may call `stop`."""

    def __init__(
        self,
        settings: Settings,
        ledger: SqlLedger,
        name: str,
        archive: TransactionArchive | None = None,
    ) -> None:
        self._settings = settings.lookback
        self._ledger = ledger
        self._name = name
        self._archive = archive or open_archive(ledger, settings)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ends `run` after the day under way; idempotent."""
        self._stop.set()

    def run(self) -> None:
        """Looks once an hour until `stop`."""
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            try:
                self.run_once()
                pause_s = EVERY_S
            except LedgerError as exc:
                log.warning("upkeep_failed", cause=str(exc))
                pause_s = _AGAIN_S

    def run_once(self) -> int:
        """Makes partitions, and archives what is old enough. Returns the number of days that left. Raises
        LedgerError."""
        with errors():
            ensure_partitions(self._ledger.database, tables=LOOKBACK_TABLES)
        if not self._settings.archive or not self._holds():
            return 0
        left = 0
        for day in self._archive.days(self._settings.keep_days):
            if self._stop.is_set() or not self._holds():
                break
            left += self._one(day)
        return left

    def _holds(self) -> bool:
        return self._ledger.duties().hold(DUTY, self._name, LEASE_MS)

    def _one(self, day: int) -> int:
        try:
            done = self._archive.archive(day)
        except DayOpen:
            log.warning("archive_day_stays", day=date_of(day), why="it has open transactions")
            return 0
        except NotAllowed as exc:
            log.error("archive_not_allowed", cause=str(exc))
            return 0
        log.info("archived", day=date_of(day), transactions=done.rows, where=done.where)
        return 1
