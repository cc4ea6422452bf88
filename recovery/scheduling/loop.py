"""The built-in scheduler: looks at the ledger again and again, with no server beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

import structlog

from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)
WORKERS: Final = 4
"""Jobs at once: a provider that is slow to answer queries must not hold up another lane's retries."""
TIDY_EVERY: Final = 100
"""Looks between two questions whether a day of the ledger is over."""


class Jobs(Protocol):
    """What there is to schedule (recovery/service.py)."""

    def look(self) -> tuple[list[str], list[str]]:
        """Lanes with something due, lanes with something in doubt."""
        ...

    def resend(self, lane: str) -> int:
        """Send again what is due."""
        ...

    def resolve(self, lane: str) -> int:
        """Ask about what is in doubt."""
        ...

    def tidy(self) -> None:
        """Let days that are over leave the ledger."""
        ...


class Loop:
    """One thread looks, a few do. A job of a lane that is still under way is not begun twice."""

    def __init__(self, jobs: Jobs, *, poll_s: float, stop: threading.Event) -> None:
        self._jobs = jobs
        self._poll_s = poll_s
        self._stop = stop
        self._lock = threading.Lock()
        self._under_way: set[tuple[str, str]] = set()  # guarded by _lock
        self._turn = 0
        self._away = False  # written by `run_once`: the last look failed

    def run(self) -> None:
        """Until `stop`; what has begun ends first."""
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="recovery") as pool:
            while not self._stop.is_set():
                self.run_once(pool)
                self._stop.wait(self._poll_s)

    def run_once(self, pool: ThreadPoolExecutor) -> None:
        """One look, and a job for each lane it found."""
        try:
            due, doubted = self._jobs.look()
        except LedgerError as exc:
            if not self._away:
                self._away = True
                log.warning("look_failed", cause=str(exc))
            return
        self._away = False
        for lane in due:
            self._begin(pool, "resend", lane, partial(self._jobs.resend, lane))
        for lane in doubted:
            self._begin(pool, "resolve", lane, partial(self._jobs.resolve, lane))
        if self._turn % TIDY_EVERY == 0:
            self._begin(pool, "tidy", "", self._jobs.tidy)
        self._turn += 1

    def _begin(
        self, pool: ThreadPoolExecutor, job: str, lane: str, run: Callable[[], object]
    ) -> None:
        with self._lock:
            if (job, lane) in self._under_way:
                return
            self._under_way.add((job, lane))
        pool.submit(self._do, job, lane, run)

    def _do(self, job: str, lane: str, run: Callable[[], object]) -> None:
        try:
            run()
        except LedgerError as exc:
            log.warning("job_failed", job=job, lane=lane, cause=str(exc))
        except Exception:  # whatever a job dies of: it is due again, and others go on
            log.exception("job_died", job=job, lane=lane)
        finally:
            with self._lock:
                self._under_way.discard((job, lane))
