"""Alert windows of one process alone, for use while the ledger is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from idempotency.alerts.windows import FIRING, Raised, Told

_MS: Final = 1_000
Subject = tuple[str, str]
"""Rule, and lane with label: the unit of the window."""


class OwnWindows:
    """For one thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._told_at: dict[Subject, float] = {}
        self._kept: Counter[Subject] = Counter()
        self._latest: dict[Subject, Raised] = {}

    def note(self, raised: Sequence[Raised], window_ms: int) -> list[Told]:
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
        return [self._told(subject, now) for subject in due]

    def left(self) -> list[Raised]:
        """Removes and returns the held-back alerts: the ledger counts them from now on."""
        kept, latest = self._kept, self._latest
        self._kept, self._latest = Counter(), {}
        return [
            msgspec.structs.replace(latest[s], count=count) for s, count in kept.items() if count
        ]

    def _is_over(self, subject: Subject, now: float, window_ms: int) -> bool:
        told_at = self._told_at.get(subject)
        return told_at is None or now - told_at >= window_ms / _MS

    def _told(self, subject: Subject, now: float) -> Told:
        self._told_at[subject] = now
        one, count = self._latest[subject], self._kept.pop(subject, 0)
        return Told(one.rule, one.lane, one.about, one.text, FIRING, count, 0)
