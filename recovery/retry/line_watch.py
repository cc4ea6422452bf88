"""Watches the lines of ordered lanes, in a thread of recovery's own, apart from the schedule.

A head that a worker's settlement woke is due: its lane is looked at within QUICK_S, not at the schedule's
next poll (docs/decisions/105). A sleeping head is woken; that happens after a worker of an older version,
or by a fault. Keys whose head holds others for long are counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from idempotency.fleet.held_lines import HeldLines
from idempotency.ledger import LedgerError
from idempotency.recovery.contract import RecoveryStore
from recovery.retry.prompts import Prompts
from recovery.telemetry import RecoveryTelemetry

log = structlog.get_logger(__name__)
LOOKS: Final = 30
"""Looks of the schedule between two walks over the lines."""
HELD_MS: Final = 60_000
"""A head that holds others for longer is counted."""
QUICK_S: Final = 0.2
"""Interval of the looks for due deliveries in ordered lanes."""
_VALID: Final = 3
"""Failed walks after which the last count is no longer shown."""


class LineWatch:
    """Watches the lines; one thread calls `run`."""

    def __init__(
        self,
        lanes: Sequence[str],
        rows: RecoveryStore,
        held: HeldLines,
        *,
        keeps_order: Callable[[str], bool],
        report: RecoveryTelemetry,
        prompts: Prompts,
        poll_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._lanes = lanes
        self._rows = rows
        self._held = held
        self._keeps_order = keeps_order
        self._report = report
        self._prompts = prompts
        self._interval_s = LOOKS * poll_s
        self._monotonic = monotonic
        self._stop = threading.Event()

    def run(self) -> None:
        """Looks and walks until `stop`."""
        walk_at = self._monotonic() + self._interval_s
        while not self._stop.wait(min(QUICK_S, self._interval_s)):
            try:
                self.look()
                if self._monotonic() >= walk_at:
                    walk_at = self._monotonic() + self._interval_s
                    self.wake()
                    self.count()
            except LedgerError as exc:
                log.debug("lines_not_looked_at", cause=str(exc))

    def stop(self) -> None:
        """Ends the thread; idempotent."""
        self._stop.set()

    def look(self) -> None:
        """Prompts a look at each ordered lane with due deliveries. Raises LedgerError."""
        if ordered := self._ordered():
            due, _ = self._rows.lanes_with_work(ordered)
            for lane in due:
                self._prompts.give(lane)

    def wake(self) -> None:
        """Wakes deliveries that sleep without a head before them. Raises LedgerError."""
        for lane in self._lanes:
            if self._stop.is_set():
                return
            woken = self._rows.wake(lane, ordered=self._keeps_order(lane))
            self._report.woken(lane, woken)
            if woken:
                self._prompts.give(lane)

    def count(self) -> None:
        """Counts the ordering keys whose head has held others for HELD_MS. Raises LedgerError."""
        lines = {lane: self._held.count(lane, HELD_MS) for lane in self._ordered()}
        self._report.behind(lines, _VALID * self._interval_s)

    def _ordered(self) -> list[str]:
        return [lane for lane in self._lanes if self._keeps_order(lane)]
