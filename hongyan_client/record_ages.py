"""Ages of open records, counted by periods: one count a period costs less than one time a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_PERIODS: Final = 8
"""Periods in the longest age."""
AGELESS: Final = -1
"""In place of the period of a record that may grow older than the others: it is never overdue."""


class RecordAges:
    """Tells when the oldest open record is too old, to an eighth of the longest age."""

    def __init__(self, longest_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._period_s = longest_s / _PERIODS
        self._monotonic = monotonic
        self._taken: dict[int, int] = {}  # by period; written under the publisher's lock
        self._ended: dict[int, int] = {}  # by period; written under the poll lock

    def now(self) -> int:
        """Returns the number of the current period."""
        return int(self._monotonic() / self._period_s)

    def taken(self, period: int) -> None:
        """Counts a record taken in this period."""
        self._taken[period] = self._taken.get(period, 0) + 1

    def ended(self, period: int) -> None:
        """Counts an end of a record that was taken in this period."""
        self._ended[period] = self._ended.get(period, 0) + 1

    def is_overdue(self) -> bool:
        """Whether a record of `_PERIODS` periods ago is open. Forgets periods without open records."""
        oldest_allowed = self.now() - _PERIODS
        for period in list(self._taken):
            if period > oldest_allowed:
                break
            if self._taken[period] > self._ended.get(period, 0):
                return True
            del self._taken[period]
            self._ended.pop(period, None)
        return False
