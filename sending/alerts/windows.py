"""Alert windows of one process alone, for use while the ledger is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from idempotency.alerts.windows import FIRING, AlertReport, Raised

_MS: Final = 1_000
Subject = tuple[str, str]
"""Rule, and lane with label: the unit of the window."""


class OwnWindows:
    """Counts and windows of alerts, for one thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._reported_at: dict[Subject, float] = {}
        self._kept: Counter[Subject] = Counter()
        self._latest: dict[Subject, Raised] = {}

    def note(self, raised: Sequence[Raised], window_ms: int) -> list[AlertReport]:
        """Counts the alerts. Returns those to send now: not sent within the window, or held back until it
        was over."""
        now, lasting = self._monotonic(), set()
        for one in raised:
            subject = one.rule, one.subject
            self._kept[subject] += one.count
            self._latest[subject] = one
            if one.lasting:
                lasting.add(subject)
        due = [
            subject
            for subject in self._latest
            if (self._kept[subject] or subject in lasting)
            and self._is_over(subject, now, window_ms)
        ]
        return [self._report(subject, now) for subject in due]

    def left(self) -> list[Raised]:
        """Removes and returns the held-back alerts: the ledger counts them from now on."""
        kept, latest = self._kept, self._latest
        self._kept, self._latest = Counter(), {}
        return [
            msgspec.structs.replace(latest[s], count=count) for s, count in kept.items() if count
        ]

    def _is_over(self, subject: Subject, now: float, window_ms: int) -> bool:
        reported_at = self._reported_at.get(subject)
        return reported_at is None or now - reported_at >= window_ms / _MS

    def _report(self, subject: Subject, now: float) -> AlertReport:
        self._reported_at[subject] = now
        one, count = self._latest[subject], self._kept.pop(subject, 0)
        return AlertReport(one.rule, one.lane, one.about, one.text, FIRING, count, 0)
