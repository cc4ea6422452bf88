"""The job that runs resend jobs: one recovery at a time, by the duty `resend_jobs`.

Each step is written under the job's version, so that a person's order between two steps is obeyed, and two
recoveries that both believe to have the duty hand nothing over twice. Nothing is kept in memory: after a
crash the next look goes on where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

from backends.kafka.clients import KafkaTrouble
from backends.settings import SettingsError
from idempotency.ledger import LedgerError
from idempotency.resend_jobs.contract import (
    FreezePlace,
    ItemFate,
    JobOvertaken,
    JobState,
    ResendJob,
    ResendMode,
)
from idempotency.resend_jobs.freezing import JobFreezing
from idempotency.resend_jobs.items import FollowResult, JobItems, baseline_of, fate_sum
from idempotency.resend_jobs.store import ResendJobStore
from recovery.resend_jobs.actions import moved_note
from recovery.resend_jobs.handover import BATCH, ItemHandover
from recovery.resend_jobs.rules import (
    CANARY_WAIT_MS,
    LAST_WAIT_MS,
    allowance,
    canary_size,
    trouble,
    waiting_until,
)
from recovery.resend_jobs.telemetry import BY_ITSELF, JobTelemetry

log = structlog.get_logger(__name__)
DUTY: Final = "resend_jobs"
LEASE_MS: Final = 30_000
ROUND_S: Final = 10.0
"""Time after which freezing, checking or following is left to the next look."""
KEEP_MS: Final = 90 * 86_400_000
"""Age at which a job that is over is deleted with its items."""
PURGE_S: Final = 60.0
NOT_ENDED: Final = (
    "{:,} of the first deliveries have not ended in {:,} s: under way, or in quiet hours"
)
CHANGED_ITEMS: Final = "its items are not those of the preview: nothing was sent"


class ResendJobRunner:
    """For one thread at a time."""

    def __init__(
        self,
        jobs: ResendJobStore,
        items: JobItems,
        freezing: JobFreezing,
        handover: ItemHandover,
        *,
        report: JobTelemetry,
        hold: Callable[[str, int], bool],
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """`hold` is `Recovery.hold`."""
        self._jobs = jobs
        self._items = items
        self._freezing = freezing
        self._handover = handover
        self._report = report
        self._hold = hold
        self._stopping = stopping
        self._monotonic = monotonic
        self._purge_at = float("-inf")

    def run_once(self) -> int:
        """Takes each open job a step further. Returns the number of open jobs. Raises LedgerError."""
        if self._stopping() or not self._hold(DUTY, LEASE_MS):
            self._report.seen(None)
            return 0
        for job in self._jobs.open():
            if self._stopping() or not self._hold(DUTY, LEASE_MS):
                break
            try:
                self._step(job)
            except JobOvertaken:
                log.debug("resend_job_overtaken", job=job.id)
            except (KafkaTrouble, SettingsError) as exc:  # a certificate is being replaced, say
                log.warning("resend_job_waits", job=job.id, cause=str(exc), what="tried again")
            except LedgerError:
                raise
            except Exception:  # its next step is due again; the other jobs go on
                log.exception("resend_job_died", job=job.id)
        self._purge()
        found = self._jobs.open()
        self._report.seen(found)
        return len(found)

    def _step(self, job: ResendJob) -> None:
        steps: dict[JobState, Callable[[ResendJob], None]] = {
            JobState.FREEZING: self._freeze,
            JobState.PREVIEW: self._lapse,
            JobState.WAITING: self._lapse,
            JobState.CHECKING: self._check,
            JobState.CANARY: self._canary,
            JobState.RUNNING: self._run,
            JobState.PAUSED: self._follow_only,
            JobState.ENDING: self._end,
        }
        steps[job.state](job)

    # ---- before anything is sent -------------------------------------------------------------

    def _freeze(self, job: ResendJob) -> None:
        until = self._monotonic() + ROUND_S
        while job.state is JobState.FREEZING and self._goes_on(until):
            job = self._freezing.page(job)
        if job.state is not JobState.FREEZING:
            self._report.moved(job)

    def _lapse(self, job: ResendJob) -> None:
        waits = job.state is JobState.WAITING
        now = self._jobs.now_ms()
        if now >= (waiting_until(job) if waits else job.preview_until or 0):
            what = "nobody approved it" if waits else "nobody started it"
            self._move(job, JobState.LAPSED, ended_at=now, noted_by=BY_ITSELF, note=what)

    def _check(self, job: ResendJob) -> None:
        """Compares every row with the frozen one. Rows that moved end the job before anything is sent."""
        until = self._monotonic() + ROUND_S
        while self._goes_on(until):
            found = self._items.check(job, job.place)
            if found.done:
                self._checked(job, found.place)
                return
            job = self._jobs.advance(job, place=found.place)

    def _checked(self, job: ResendJob, place: FreezePlace) -> None:
        now = self._jobs.now_ms()
        note = moved_note(place.number) if place.number else ""
        if not note and place.digest != job.digest:
            note = CHANGED_ITEMS
        if note:
            self._move(job, JobState.REFUSED, ended_at=now, noted_by=BY_ITSELF, note=note)
            return
        self._move(job, JobState.CANARY, paced_at=now, place=FreezePlace())

    # ---- handing over ------------------------------------------------------------------------

    def _canary(self, job: ResendJob) -> None:
        found = self._followed(job)
        if self._paused(job, found.troubled):
            return
        left = self._pending(job)
        missing = canary_size(job) - (job.eligible - left)
        if (missing > 0 and left) or self._unproduced(job):
            job = self._jobs.advance(job, paced_at=self._jobs.now_ms())
            self._hand_over(job, missing)
        elif not found.waiting and not found.after:
            now = self._jobs.now_ms()
            self._move(job, JobState.RUNNING, paced_at=now)
        elif self._jobs.now_ms() - (job.paced_at or 0) >= CANARY_WAIT_MS:
            self._pause(job, NOT_ENDED.format(found.waiting, CANARY_WAIT_MS // 1_000))

    def _run(self, job: ResendJob) -> None:
        found = self._followed(job)
        if self._paused(job, found.troubled):
            return
        if not self._pending(job) and not self._unproduced(job):
            self._move(job, JobState.ENDING)
            return
        now = self._jobs.now_ms()
        allowed = allowance(job, now, self._under_way(job))
        if allowed or self._unproduced(job):
            # Written first: of two recoveries one alone hands these over.
            job = self._jobs.advance(job, paced_at=now)
            self._hand_over(job, allowed)

    def _hand_over(self, job: ResendJob, limit: int) -> None:
        give = self._handover.again if job.mode is ResendMode.AGAIN else self._handover.copies
        while limit > 0 or (job.mode is ResendMode.COPY and self._unproduced(job)):
            given = give(job, min(limit, BATCH))
            limit -= given
            if not given or self._stopping() or not self._hold(DUTY, LEASE_MS):
                return
            # A person may have paused it meanwhile.
            job = self._jobs.advance(job)

    def _end(self, job: ResendJob) -> None:
        self._followed(job)
        now = self._jobs.now_ms()
        waits = now - job.since < LAST_WAIT_MS
        if waits and self._unproduced(job):
            # Kafka may have these copies: the same bytes once more leave no doubt.
            self._hand_over(self._jobs.advance(job), 0)
            return
        if waits and self._under_way(job):
            return
        state = JobState.CANCELLED if job.cancelled else JobState.DONE
        self._move(job, state, ended_at=now)

    def _follow_only(self, job: ResendJob) -> None:
        self._followed(job)

    # ---- ends --------------------------------------------------------------------------------

    def _followed(self, job: ResendJob) -> FollowResult:
        """Writes the ends that came. Returns the sums of the items that were looked at: of all that were
        handed over, unless `after` has the last one for which there was time."""
        until = self._monotonic() + ROUND_S
        after, waiting, troubled = "", 0, 0
        while True:
            found = self._items.follow(job, after)
            for fate in (ItemFate.SENT, ItemFate.FAILED, ItemFate.REFUSED):
                self._report.items(fate, sum(one.fate is fate for one in found.ended))
            waiting, troubled = waiting + found.waiting, troubled + found.troubled
            after = found.after
            if not after or not self._goes_on(until):
                break
        return FollowResult(after, waiting, troubled, ())

    def _paused(self, job: ResendJob, troubled: int) -> bool:
        """Pauses the job if too many of its deliveries ended badly."""
        why = trouble(job, self._items.counts(job.id), troubled)
        if why:
            self._pause(job, why)
        return bool(why)

    def _pause(self, job: ResendJob, why: str) -> None:
        note = {"noted_by": BY_ITSELF, "note": why}
        self._move(job, JobState.PAUSED, paused_from=job.state, **note)

    # ---- parts -------------------------------------------------------------------------------

    def _pending(self, job: ResendJob) -> int:
        return fate_sum(self._items.counts(job.id), ItemFate.PENDING)

    def _unproduced(self, job: ResendJob) -> int:
        return fate_sum(self._items.counts(job.id), ItemFate.APPLYING)

    def _under_way(self, job: ResendJob) -> int:
        return fate_sum(self._items.counts(job.id), ItemFate.APPLYING, ItemFate.APPLIED)

    def _move(self, job: ResendJob, state: JobState, **changes: Any) -> None:
        if state is JobState.CANARY:
            changes["baseline"] = baseline_of(self._items.counts(job.id), 0)
        self._report.moved(self._jobs.advance(job, state=state, **changes))

    def _goes_on(self, until: float) -> bool:
        return not self._stopping() and self._monotonic() < until and self._hold(DUTY, LEASE_MS)

    def _purge(self) -> None:
        """Deletes old jobs, a part at a time."""
        if self._monotonic() < self._purge_at:
            return
        if self._jobs.purge(self._jobs.now_ms() - KEEP_MS) < 0:
            self._purge_at = self._monotonic() + PURGE_S
