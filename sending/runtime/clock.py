"""The worker's clock: the database's time, continued by the monotonic clock between heartbeats.

A jump of the machine's wall clock has no effect: every heartbeat brings the database's time, and
`time.monotonic` counts on from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_MS = 1_000


class Clock:
    """Epoch milliseconds by the database. `WorkerLease` calls `calibrate`; any thread may read."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.monotonic = monotonic
        self._ahead = wall() - monotonic()
        self._calibrated = False

    def calibrate(self, database_ms: int, asked_at: float) -> None:
        """Takes `database_ms`, the answer of the database to a query sent at monotonic `asked_at`.

        The database read its clock at some moment of that query. A time known before that fits stays: the
        middle of a slow query may be seconds away from that moment.
        """
        database_s = database_ms / _MS
        least, most = database_s - self.monotonic(), database_s - asked_at
        known = self._ahead if self._calibrated else (least + most) / 2
        self._ahead = min(max(known, least), most)
        self._calibrated = True

    def now_ms(self) -> int:
        """Returns the time in epoch milliseconds."""
        return int((self.monotonic() + self._ahead) * _MS)
