"""The built-in scheduler: polls the ledger, without Celery."""

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
"""Jobs at once: a provider with slow queries must not hold up another lane's retries."""
TIDY_EVERY: Final = 100
"""Looks between two calls of `tidy`."""


class Jobs(Protocol):
    """The jobs to schedule (recovery/service.py)."""

    def look(self) -> tuple[list[str], list[str]]:
        """Returns the lanes with due deliveries, and those with doubts."""
        ...

    def resend(self, lane: str) -> int:
        """Sends due deliveries again."""
        ...

    def resolve(self, lane: str) -> int:
        """Asks about deliveries in doubt."""
        ...

    def tidy(self) -> None:
        """Archives old days of the ledger."""
        ...

    def enter_lost(self) -> int:
        """Enters deliveries that were found lost."""
        ...

    def run_jobs(self) -> int:
        """Takes the resend jobs a step further."""
        ...


class Loop:
    """One thread looks, WORKERS run the jobs. A lane's job is not begun twice at a time."""

    def __init__(self, jobs: Jobs, *, poll_s: float, stop: threading.Event) -> None:
        self._jobs = jobs
        self._poll_s = poll_s
        self._stop = stop
        self._lock = threading.Lock()
        self._under_way: set[tuple[str, str]] = set()  # guarded by _lock
        self._turn = 0
        self._away = False  # written by `run_once`: the last look failed

    def run(self) -> None:
        """Works until `stop`; begun jobs end first."""
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="recovery") as pool:
            while not self._stop.is_set():
                self.run_once(pool)
                self._stop.wait(self._poll_s)

    def run_once(self, pool: ThreadPoolExecutor) -> None:
        """Looks once and begins a job for each lane found."""
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
        self._begin(pool, "lost", "", self._jobs.enter_lost)
        self._begin(pool, "resend_jobs", "", self._jobs.run_jobs)
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
        except Exception:  # a job that died is due again; the others continue
            log.exception("job_died", job=job, lane=lane)
        finally:
            with self._lock:
                self._under_way.discard((job, lane))
