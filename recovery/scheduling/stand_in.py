"""The built-in schedule as a stand-in: it calls the jobs while Celery calls none in this process.

Both schedules may run for a moment: a job may be called too often, and twice at once
(recovery/service.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from recovery.activity import Activity
from recovery.scheduling.loop import WORKERS, Jobs, Loop

log = structlog.get_logger(__name__)
_SILENT_LOOKS: Final = 5
_LEAST_SILENT_S: Final = 3.0
"""A busy machine may delay Celery's threads for so long."""


class StandIn:
    """Runs in one thread of recovery's group."""

    def __init__(
        self,
        jobs: Jobs,
        activity: Activity,
        *,
        poll_s: float,
        stop: threading.Event,
        mend: Callable[[], None],
    ) -> None:
        """`mend` is called in each round of an outage; it must not raise."""
        self._activity = activity
        self._loop = Loop(jobs, poll_s=poll_s, stop=stop)
        self._poll_s = poll_s
        self._stop = stop
        self._mend = mend
        self._silent_s = max(_SILENT_LOOKS * poll_s, _LEAST_SILENT_S)
        self._standing_in = False
        self._cause = ""

    def run(self) -> None:
        """Works until `stop`; begun jobs end first."""
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="stand-in") as pool:
            while not self._stop.wait(self._poll_s):
                self.run_once(pool)

    def run_once(self, pool: ThreadPoolExecutor) -> None:
        """Looks itself if Celery is silent; logs the beginning, the cause and the end of that once."""
        if self._activity.silent_s() < self._silent_s:
            self._end()
            return
        self._begin()
        self._mend()
        self._loop.run_once(pool)

    def _begin(self) -> None:
        if not self._standing_in:
            self._standing_in = True
            self._cause = self._activity.take_trouble()
            log.warning(
                "celery_silent",
                cause=self._cause or "no task arrived",
                what="the built-in schedule works until Celery does again",
            )
        elif not self._cause and (cause := self._activity.take_trouble()):
            self._cause = cause
            log.warning("celery_trouble", cause=cause)

    def _end(self) -> None:
        if self._standing_in:
            self._standing_in = False
            log.info("celery_back")
