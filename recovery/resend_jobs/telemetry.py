"""Metrics and log lines of resend jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from backends.metrics import recovery_families as of_recovery
from backends.metrics.instruments import counter_of
from backends.metrics.readings import Reading, show_readings
from idempotency.resend_jobs.contract import ItemFate, JobState, ResendJob

log = structlog.get_logger(__name__)
BY_ITSELF = "recovery"
"""Name on a job that recovery paused or refused."""


class JobTelemetry:
    """Never raises."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._items = partial(counter_of, registry=registry)(of_recovery.RESEND_JOB_ITEMS)
        self._paused: Sequence[str] = ()
        """Ids of jobs that paused themselves; written by `seen`, on the thread of `run_once`."""
        self._open = 0  # written as `_paused`
        families = of_recovery.RESEND_JOBS_PAUSED, of_recovery.RESEND_JOBS_OPEN
        show_readings(registry, self._readings, *families)

    def seen(self, jobs: Sequence[ResendJob] | None) -> None:
        """Shows the open jobs; None: another recovery has the duty, and shows them."""
        self._open = len(jobs or ())
        self._paused = [
            job.id
            for job in jobs or ()
            if job.state is JobState.PAUSED and job.noted_by == BY_ITSELF
        ]

    def items(self, fate: ItemFate, number: int) -> None:
        """Counts items that got a fate."""
        if number:
            self._items.labels(fate.value).inc(number)

    def moved(self, job: ResendJob) -> None:
        """Logs the new state of a job."""
        write = log.warning if job.state in (JobState.PAUSED, JobState.REFUSED) else log.info
        write("resend_job", job=job.id, state=job.state.value, note=job.note or "")

    def _readings(self) -> Iterable[Reading]:
        yield Reading(of_recovery.RESEND_JOBS_OPEN, {}, self._open)
        for job in self._paused:
            yield Reading(of_recovery.RESEND_JOBS_PAUSED, {"job": job}, 1)
