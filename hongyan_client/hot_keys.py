"""Names the ordering keys that take a large share of their lane, in bounded memory.

The counts are those of Misra and Gries: at most `_KEYS` counters a lane, each too low by at most the
lane's count divided by `_KEYS`. They are halved every `_WINDOW` notifications, so that old traffic fades.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

_KEYS: Final = 64
_WINDOW: Final = 20_000
_ENOUGH: Final = 200
"""Notifications of a lane below which no key is named."""
_SHOWN: Final = 10


class HotKey(NamedTuple):
    """An ordering key with much of its lane's traffic: one partition carries it."""

    lane: str
    key: str
    share: float
    """Of the lane's recent notifications, from 0 to 1."""


class KeyShares:
    """Counts notifications by lane and ordering key. Any thread."""

    def __init__(self, hot_share: float) -> None:
        self._hot_share = hot_share
        self._lock = threading.Lock()  # guards both
        self._counts: dict[str, dict[str, int]] = {}
        self._totals: dict[str, int] = {}

    def note(self, lane: str, key: str | None) -> None:
        """Counts one notification; None or an empty key: it has no ordering key."""
        self.note_many(lane, 1, (key,) if key else ())

    def note_many(self, lane: str, count: int, keys: Sequence[str]) -> None:
        """Counts notifications of a lane, and the keys of those that have one."""
        if not count:
            return
        with self._lock:
            total = self._totals.get(lane, 0) + count
            self._totals[lane] = total
            if keys:
                counts = self._counts.setdefault(lane, {})
                for key in keys:
                    self._count(counts, key)
            if total >= _WINDOW:
                self._halve(lane)

    def hot(self) -> list[HotKey]:
        """Returns the hot keys, the largest share first."""
        with self._lock:
            found = [
                HotKey(lane, key, count / self._totals[lane])
                for lane, counts in self._counts.items()
                if self._totals[lane] >= _ENOUGH
                for key, count in counts.items()
            ]
        hot = [one for one in found if one.share >= self._hot_share]
        return sorted(hot, key=lambda one: -one.share)[:_SHOWN]

    def _halve(self, lane: str) -> None:
        self._totals[lane] //= 2
        counts = self._counts.get(lane, {})
        self._counts[lane] = {key: half for key, count in counts.items() if (half := count // 2)}

    @staticmethod
    def _count(counts: dict[str, int], key: str) -> None:
        if key in counts or len(counts) < _KEYS:
            counts[key] = counts.get(key, 0) + 1
            return
        for other in list(counts):
            counts[other] -= 1
            if not counts[other]:
                del counts[other]
