"""Celery's worker may stay connected after an outage of Redis and read no queue any more, without an error
(decision 297). Only its tasks tell: they wait in Redis while it runs none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

DEAF_S: Final = 15.0
"""Tasks wait for so long, in Celery's silence, before its worker is ended. After an outage it needs a few
seconds to connect."""
_GAP_LOOKS: Final = 3
_LEAST_GAP_S: Final = 5.0


class DeafWorkerWatch:
    """Belongs to one thread, which calls `look` while Celery is silent and only then."""

    def __init__(
        self,
        waiting: Callable[[], int],
        end: Callable[[], None],
        *,
        poll_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waiting` returns the tasks that wait, 0 while Redis is away; `end` ends the worker. `poll_s`:
        seconds between two looks."""
        self._waiting = waiting
        self._end = end
        self._gap_s = max(_GAP_LOOKS * poll_s, _LEAST_GAP_S)
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._since: float | None = None

    def look(self) -> None:
        """Ends the worker once tasks have waited for DEAF_S in one silence."""
        now = self._monotonic()
        if now - self._looked_at > self._gap_s or not self._waiting():
            self._since = None  # Celery was not silent in between, or nothing waits
        elif self._since is None:
            self._since = now
        elif now - self._since >= DEAF_S:
            self._since = None
            self._end()
        self._looked_at = now
