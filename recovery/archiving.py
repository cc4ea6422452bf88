"""The job that lets old days leave the ledger (docs/archive.md): one recovery at a time, once an hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from idempotency.archive import Archive, DayOpen, NotAllowed, date_of, least_days
from policy.schema import Policy

log = structlog.get_logger(__name__)
DUTY: Final = "archive"
LEASE_MS: Final = 600_000
EVERY_S: Final = 3_600.0
"""Between two looks for days that are over."""


class Archiving:
    """One thread at a time. A day that stays is told again at every look, until its rows have ended."""

    def __init__(
        self,
        archive: Archive,
        policy: Policy,
        *,
        hold: Callable[[str, int], bool],
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """`hold` is `Recovery.hold`."""
        self._archive = archive
        self._hold = hold
        self._stopping = stopping
        self._monotonic = monotonic
        self._next_at = float("-inf")
        self._refused = False
        """The database does not let us: nothing more is tried."""
        self._keep_days: int | None = None
        """None: the policy in force keeps too few to be let go safely."""
        self.adopt(policy)

    def adopt(self, policy: Policy) -> None:
        """Keep as many days as this policy says from now on; any thread."""
        keep, least = policy.retention_days, least_days(policy)
        if keep < least:
            log.warning("archive_off", retention_days=keep, least=least)
        self._keep_days = keep if keep >= least else None

    def run_once(self) -> int:
        """Days that left. Raises LedgerError; then the next call looks again."""
        keep_days = self._keep_days
        if keep_days is None or self._refused or self._monotonic() < self._next_at:
            return 0
        if not self._hold(DUTY, LEASE_MS):
            return 0
        try:
            left = self._let_go(keep_days)
        except NotAllowed as exc:
            log.error("archive_not_allowed", cause=str(exc))
            self._refused, left = True, 0
        self._next_at = self._monotonic() + EVERY_S
        return left

    def _let_go(self, keep_days: int) -> int:
        left = 0
        self._archive.finish()
        for day in self._archive.days(keep_days):
            if self._stopping() or not self._hold(DUTY, LEASE_MS):
                break
            left += self._one(day)
        return left

    def _one(self, day: int) -> int:
        try:
            done = self._archive.archive(day)
        except DayOpen:
            log.warning("archive_day_stays", day=date_of(day), why="it has open rows")
            return 0
        log.info("archived", day=date_of(day), deliveries=done.rows, where=done.where)
        return 1
