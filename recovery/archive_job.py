"""The job that archives old days of the ledger (docs/archive.md): one recovery at a time, once an hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from backends.kafka.clients import KafkaTrouble
from idempotency.archive.contract import Archive, DayOpen, NotAllowed, date_of, least_days
from policy.schema import Policy

log = structlog.get_logger(__name__)
DUTY: Final = "archive"
LEASE_MS: Final = 600_000
EVERY_S: Final = 3_600.0
"""Interval of the looks for old days."""


class Archiving:
    """For one thread at a time. A day with open rows stays, and each look logs it."""

    def __init__(
        self,
        archive: Archive,
        policy: Policy,
        *,
        hold: Callable[[str, int], bool],
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
        topic_days: Callable[[Policy], int],
    ) -> None:
        """`hold` is `Recovery.hold`, `topic_days` that of backends/kafka/retention.py."""
        self._archive = archive
        self._hold = hold
        self._stopping = stopping
        self._monotonic = monotonic
        self._next_at = float("-inf")
        self._refused = False
        """Whether the database refused the job; it is not tried again."""
        self._topic_days = topic_days
        self._policy = policy

    def adopt(self, policy: Policy) -> None:
        """Takes the number of days from this policy from now on; from any thread."""
        self._policy = policy

    def run_once(self) -> int:
        """Returns the number of days that left. Raises LedgerError; the next call looks again then."""
        if self._refused or self._monotonic() < self._next_at or not self._hold(DUTY, LEASE_MS):
            return 0
        try:
            left = self._let_go()
        except NotAllowed as exc:
            log.error("archive_not_allowed", cause=str(exc))
            self._refused, left = True, 0
        self._next_at = self._monotonic() + EVERY_S
        return left

    def _let_go(self) -> int:
        left, keep_days = 0, self._policy.retention_days
        self._archive.finish()
        days = self._archive.days(keep_days)
        if not days or not self._is_long_enough(keep_days):
            return 0
        for day in days:
            if self._stopping() or not self._hold(DUTY, LEASE_MS):
                break
            left += self._one(day)
        return left

    def _is_long_enough(self, keep_days: int) -> bool:
        """Returns whether Kafka keeps no record of the days that leave, which would be sent again; False if
        the broker does not answer. Asks the broker, so only once there are days to archive."""
        try:
            least = least_days(self._policy, self._topic_days(self._policy))
        except KafkaTrouble as exc:
            log.warning("archive_held", cause=str(exc), what="looked at again in an hour")
            return False
        if keep_days < least:
            log.warning("archive_off", retention_days=keep_days, least=least)
        return keep_days >= least

    def _one(self, day: int) -> int:
        try:
            done = self._archive.archive(day)
        except DayOpen:
            log.warning("archive_day_stays", day=date_of(day), why="it has open rows")
            return 0
        log.info("archived", day=date_of(day), deliveries=done.rows, where=done.where)
        if done.parked:
            what = "nobody decided about these; `hongyan resend ID` still finds them"
            log.warning(
                "archived_parked", day=date_of(day), rows=done.parked, where=done.where, what=what
            )
        return 1
