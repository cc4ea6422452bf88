"""Permits for dead letters: a burst, then a fixed rate.

A faulty producer or a missing account makes poison of a whole topic. The quota stops an unattended worker
from moving all of it to the dead letters. Without a permit a record stays open, its offset holds, and its
lane is paused until permits are earned again (docs/dead-letters.md).
"""

from __future__ import annotations

from collections.abc import Callable


class DeadLetterQuota:
    """One bucket per lane and reason, so that one lane's flood holds no other lane. For one thread."""

    def __init__(self, burst: int, rate_per_s: float, monotonic: Callable[[], float]) -> None:
        self._burst = burst
        self._rate = rate_per_s
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}
        """Lane and reason to the permits left and when they were counted."""

    def take(self, lane: str, reason: str) -> bool:
        """Takes one permit. Returns False if there is none."""
        now = self._monotonic()
        left = self._left(lane, reason, now)
        self._buckets[lane, reason] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    def wait_s(self, lane: str, reason: str) -> float:
        """Returns the seconds until there is a permit."""
        return max(0.0, (1 - self._left(lane, reason, self._monotonic())) / self._rate)

    def _left(self, lane: str, reason: str, now: float) -> float:
        left, at = self._buckets.get((lane, reason), (float(self._burst), now))
        return min(float(self._burst), left + (now - at) * self._rate)
