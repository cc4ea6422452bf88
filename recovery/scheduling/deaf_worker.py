"""Celery's worker may stay connected after an outage of Redis and read no queue any more, without an error
(decision 297). Only its queue tells: it is not empty, and this process runs no task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

DEAF_S: Final = 15.0
"""The queue is not empty for so long, and no task runs, before the worker is ended. A worker needs a few
seconds to connect after an outage."""


class DeafWorkerWatch:
    """Belongs to one thread, which calls `look` again and again while Celery is silent."""

    def __init__(
        self,
        waiting: Callable[[], int],
        silent_s: Callable[[], float],
        end: Callable[[], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waiting` returns the number of tasks in the queue, 0 while Redis is away; `silent_s` the seconds
        since this process ran a task; `end` ends the worker."""
        self._waiting = waiting
        self._silent_s = silent_s
        self._end = end
        self._monotonic = monotonic
        self._since: float | None = None

    def look(self) -> None:
        """Ends the worker once the queue was empty at no look for DEAF_S, and no task ran."""
        now = self._monotonic()
        if not self._waiting():
            self._since = None
        elif self._since is None or self._silent_s() < now - self._since:
            self._since = now
        elif now - self._since >= DEAF_S:
            self._since = None
            self._end()
