"""A person's actions on resend jobs: make, preview, start, approve, pause, resume, cancel.

Every change is written under the version of the job that it was decided on. Of two persons the second is
refused, and told what the job became.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from idempotency.resend_jobs.contract import (
    NAMES_AT_MOST,
    FreezePlace,
    ItemFate,
    JobCount,
    JobFilter,
    JobItem,
    JobLimits,
    JobOvertaken,
    JobState,
    ResendJob,
    ResendMode,
    can_move,
)
from idempotency.resend_jobs.freezing import SELECTABLE
from idempotency.resend_jobs.items import JobItems, baseline_of
from idempotency.resend_jobs.store import AlsoNoted, NewJob, ResendJobStore, nothing_more
from message.vocabulary import lane_named
from recovery.operator_rules import AUTHOR_AT_MOST, WHY_AT_MOST
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.rules import (
    approval_refusal,
    duration_s,
    is_signed,
    signature,
    start_refusal,
)
from tracing.masks import masked_text

SAMPLE: Final = 10
"""Items of a preview's sample."""
NAME_AT_MOST: Final = 64
"""Characters of a name."""
_MOVED: Final = (
    "{:,} of the deliveries have moved since the preview: nothing was sent;"
    " make a new job, which selects anew"
)


class JobPreview(NamedTuple):
    """A job with all that a person needs to decide about it."""

    job: ResendJob
    counts: Sequence[JobCount]
    sample: Sequence[JobItem]
    """Of the items that would be sent; a fair sample, since keys are digests."""
    duration_s: float
    """Estimated; without the wait for the canary's ends."""
    signature: str
    """To be given with the start and the approval; empty before the selection is frozen."""


class ResendJobActions:
    """Every method raises ResendJobRefused and LedgerError alone. `who` is the person's name."""

    def __init__(
        self, jobs: ResendJobStore, items: JobItems, also: AlsoNoted = nothing_more
    ) -> None:
        """`also` writes in the transaction of each change, such as a row of an audit."""
        self._jobs = jobs
        self._items = items
        self._also = also

    def make(
        self,
        mode: ResendMode,
        wanted: JobFilter,
        limits: JobLimits,
        *,
        who: str,
        reason: str,
        names: Collection[str] = (),
        job_id: str = "",
    ) -> ResendJob:
        """Makes a job, whose selection recovery freezes. The same `job_id` twice is one job."""
        if not reason.strip():
            raise ResendJobRefused("a reason is required: it is kept with the job")
        given = [name for name in dict.fromkeys(map(str.strip, names)) if name]
        self._check(wanted, given)
        new = NewJob(
            id=job_id or f"rj-{secrets.token_hex(5)}",
            mode=mode,
            wanted=wanted,
            limits=limits,
            author=_author(who),
            reason=_text(reason),
            names=given,
        )
        return self._jobs.make(new, self._also)

    def get(self, job_id: str) -> ResendJob:
        """Returns a job."""
        found = self._jobs.get(job_id)
        if found is None:
            raise ResendJobRefused(f"there is no job {job_id!r}")
        return found

    def preview(self, job_id: str) -> JobPreview:
        """Returns a job with its counts, a sample, and the signature that a start needs."""
        job = self.get(job_id)
        signed = signature(self._jobs.signing_key(), job) if job.preview_until else ""
        sample = self._items.page(job_id, "", SAMPLE, ItemFate.PENDING) if signed else []
        return JobPreview(job, self._items.counts(job_id), sample, duration_s(job), signed)

    def start(self, job_id: str, signed: str, *, typed: int, who: str, reason: str) -> ResendJob:
        """Starts a previewed job: `signed` is the preview's signature, `typed` the count that the person
        typed. Above the job's threshold it waits for a second person."""
        job, now = self.get(job_id), self._jobs.now_ms()
        valid = is_signed(self._jobs.signing_key(), job, signed)
        if why := start_refusal(job, now, typed=typed, reason=reason, signed=valid):
            raise ResendJobRefused(why)
        self._refuse_moved(job)
        return self._advance(
            job,
            state=JobState.WAITING if job.needs_approval else JobState.CHECKING,
            started_by=_author(who),
            started_at=now,
            start_reason=_text(reason),
        )

    def approve(self, job_id: str, signed: str, *, who: str) -> ResendJob:
        """Lets a started job go on, as a second person."""
        job, now = self.get(job_id), self._jobs.now_ms()
        valid = is_signed(self._jobs.signing_key(), job, signed)
        if why := approval_refusal(job, now, _author(who), signed=valid):
            raise ResendJobRefused(why)
        return self._advance(
            job, state=JobState.CHECKING, approved_by=_author(who), approved_at=now
        )

    def pause(self, job_id: str, *, who: str, reason: str) -> ResendJob:
        """Pauses a job that is checked or handed over. Deliveries under way go on."""
        job = self._movable(job_id, JobState.PAUSED, reason)
        note = {"noted_by": _author(who), "note": _text(reason)}
        return self._advance(job, state=JobState.PAUSED, paused_from=job.state, **note)

    def resume(self, job_id: str, *, who: str, reason: str) -> ResendJob:
        """Resumes a paused job. Ends from before are not judged again."""
        job, now = self.get(job_id), self._jobs.now_ms()
        if job.state is not JobState.PAUSED or job.paused_from is None:
            raise ResendJobRefused(f"job {job_id} is {job.state}, and not paused")
        return self._advance(
            job,
            state=job.paused_from,
            paused_from=None,
            paced_at=now,
            baseline=baseline_of(self._items.counts(job_id), now),
            noted_by=_author(who),
            note=_text(reason),
        )

    def cancel(self, job_id: str, *, who: str, reason: str) -> ResendJob:
        """Hands nothing more over. Deliveries under way go on, and their ends are written."""
        job = self.get(job_id)
        target = JobState.CANCELLED if can_move(job.state, JobState.CANCELLED) else JobState.ENDING
        if job.state is JobState.PAUSED and job.paused_from is not JobState.CHECKING:
            target = JobState.ENDING
        if job.state is JobState.ENDING or not can_move(job.state, target):
            raise ResendJobRefused(f"job {job_id} is {job.state}: nothing is left to cancel")
        if not reason.strip():
            raise ResendJobRefused("a reason is required: it is kept with the job")
        note: dict[str, Any] = {"noted_by": _author(who), "note": _text(reason), "cancelled": True}
        if target is JobState.CANCELLED:
            note["ended_at"] = self._jobs.now_ms()
        return self._advance(job, state=target, paused_from=None, **note)

    # ---- parts -------------------------------------------------------------------------------

    def _check(self, wanted: JobFilter, names: Sequence[str]) -> None:
        if bool(names) == bool(wanted.states):
            raise ResendJobRefused("select either by state and lane, or by names")
        if len(names) > NAMES_AT_MOST:
            raise ResendJobRefused(f"{len(names):,} names are too many: {NAMES_AT_MOST:,} at most")
        if any(len(name) > NAME_AT_MOST for name in names):
            raise ResendJobRefused("a name is longer than 64 characters: give keys or message ids")
        for state in wanted.states:
            if state not in SELECTABLE:
                raise ResendJobRefused(f"a filter has no state {state!r}; {', '.join(SELECTABLE)}")
        if unknown := [lane for lane in wanted.lanes if lane_named(lane) is None]:
            raise ResendJobRefused(f"there is no lane {unknown[0]!r}")
        if wanted.states and not wanted.lanes:
            raise ResendJobRefused("name at least one lane")
        if wanted.until and wanted.until <= wanted.since:
            raise ResendJobRefused("the time window is empty")
        if wanted.template and not self._jobs.has_templates():
            raise ResendJobRefused("this ledger's rows do not name their template")

    def _movable(self, job_id: str, target: JobState, reason: str) -> ResendJob:
        job = self.get(job_id)
        if not can_move(job.state, target):
            raise ResendJobRefused(f"job {job_id} is {job.state}, and cannot become {target}")
        if not reason.strip():
            raise ResendJobRefused("a reason is required: it is kept with the job")
        return job

    def _refuse_moved(self, job: ResendJob) -> None:
        """Refuses a job some of whose first rows moved; recovery checks all of them before it sends."""
        moved = self._items.check(job, FreezePlace()).place.number
        if not moved:
            return
        note = _MOVED.format(moved)
        now = self._jobs.now_ms()
        self._advance(job, state=JobState.REFUSED, noted_by="recovery", note=note, ended_at=now)
        raise ResendJobRefused(note)

    def _advance(self, job: ResendJob, **changes: Any) -> ResendJob:
        try:
            return self._jobs.advance(job, self._also, **changes)
        except JobOvertaken:
            now = self.get(job.id)
            by = f" by {now.noted_by}" if now.noted_by else ""
            raise ResendJobRefused(
                f"job {job.id} was changed meanwhile{by} and is {now.state}: look at it again"
            ) from None


def moved_note(moved: int) -> str:
    """Returns the note of a job that was refused because rows moved."""
    return _MOVED.format(moved)


def fields_of(preview: JobPreview) -> dict[str, Any]:
    """Returns a preview for programs."""
    fields: dict[str, Any] = msgspec.to_builtins(preview.job)
    counts = [one._asdict() | {"fate": one.fate.value} for one in preview.counts]
    sample = [one._asdict() | {"fate": one.fate.value} for one in preview.sample]
    more = {"preview": preview.signature, "duration_s": round(preview.duration_s, 1)}
    return fields | more | {"counts": counts, "sample": sample}


def _author(who: str) -> str:
    name = " ".join(who.split())[:AUTHOR_AT_MOST]
    if not name:
        raise ResendJobRefused("a person's name is required")
    return name


def _text(reason: str) -> str:
    return masked_text(reason.strip()[:WHY_AT_MOST])
