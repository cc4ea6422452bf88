"""Rules of resend jobs: signatures, refusals, pace, and the judgement of ends. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from idempotency.resend_jobs.contract import ItemFate, JobCount, JobState, ResendJob
from idempotency.resend_jobs.items import fate_sum
from recovery.operator_rules import AUTHOR_AT_MOST

RAMP_FROM: Final = 8
"""A job begins with this part of its rate after the canary."""
RAMP_STEP_MS: Final = 30_000
"""Interval at which the rate doubles, up to the job's own."""
SAVED_MS: Final = 5_000
"""Time for which unused permits are saved."""
SAMPLE: Final = 20
"""Ends that are judged, at least."""
CANARY_WAIT_MS: Final = 300_000
"""Longest wait for the ends of the canary."""
LAST_WAIT_MS: Final = 86_400_000
"""Longest wait for the last ends."""
UNDER_WAY_S: Final = 60.0
"""Items under way at most, in seconds of the job's rate."""
_SIGNATURE: Final = 32
_MS: Final = 1_000


def signature(key: str, job: ResendJob) -> str:
    """Returns the signature of a preview: of the job's id, its items and its expiry."""
    signed = f"{job.id}|{job.digest}|{job.eligible}|{job.preview_until}"
    return hmac.new(key.encode(), signed.encode(), sha256).hexdigest()[:_SIGNATURE]


def is_signed(key: str, job: ResendJob, given: str) -> bool:
    """Returns whether a signature is that of the job's preview."""
    return hmac.compare_digest(signature(key, job).encode(), given.strip().encode())


def same_person(one: str | None, other: str) -> bool:
    """Returns whether two names are those of one person. Either may be cut to AUTHOR_AT_MOST characters, as
    jobs and campaigns keep it: names that differ behind them count as one."""
    return _name(one or "") == _name(other)


def _name(name: str) -> str:
    return " ".join(name.split())[:AUTHOR_AT_MOST].rstrip().casefold()


def start_refusal(job: ResendJob, now: int, *, typed: int, reason: str, signed: bool) -> str:
    """Returns why a start is refused; empty if it is not."""
    if job.state is not JobState.PREVIEW:
        return f"job {job.id} is {job.state}: only a job in PREVIEW can be started"
    if not signed:
        return "this is not the preview of that job: look at it again"
    if now >= (job.preview_until or 0):
        return "the preview has expired: make a new job, which selects anew"
    if not job.eligible:
        return "nothing of the selection can be sent"
    if typed != job.eligible:
        return f"the typed count is {typed:,}, and {job.eligible:,} would be sent"
    return "" if reason.strip() else "a reason is required: it is kept with each delivery"


def approval_refusal(job: ResendJob, now: int, who: str, *, signed: bool) -> str:
    """Returns why an approval is refused; empty if it is not."""
    if job.state is not JobState.WAITING:
        return f"job {job.id} is {job.state}: it waits for no approval"
    if same_person(job.started_by, who) or same_person(job.author, who):
        return "another person must approve: you made or started this job"
    if not signed:
        return "this is not the preview of that job: look at it again"
    return "" if now < waiting_until(job) else "the start has waited too long: make a new job"


def waiting_until(job: ResendJob) -> int:
    """Returns the time at which a start lapses without approval, epoch milliseconds."""
    return (job.started_at or 0) + int(job.limits.preview_s * _MS)


def canary_size(job: ResendJob) -> int:
    """Returns the number of items that go first."""
    return min(job.limits.canary, job.eligible)


def ramp_rate(job: ResendJob, now: int) -> float:
    """Returns the rate of a RUNNING job, items a second: it doubles up to the job's own."""
    steps = max(now - job.since, 0) // RAMP_STEP_MS
    return job.limits.rate_per_s * min(1.0, 2.0 ** min(steps, RAMP_FROM) / RAMP_FROM)


def allowance(job: ResendJob, now: int, under_way: int) -> int:
    """Returns the number of items that may be handed over now. With fewer than one the time is saved."""
    rate = ramp_rate(job, now)
    saved_ms = min(max(now - (job.paced_at or now), 0), max(SAVED_MS, int(_MS / rate) + 1))
    room = max(int(job.limits.rate_per_s * UNDER_WAY_S), canary_size(job)) - under_way
    return max(0, min(int(rate * saved_ms / _MS), room))


def duration_s(job: ResendJob) -> float:
    """Returns the estimated duration of handing over, seconds, without the wait for the canary's ends."""
    left, seconds = float(job.eligible - canary_size(job)), 0.0
    rate, step_s = job.limits.rate_per_s / RAMP_FROM, RAMP_STEP_MS / _MS
    while rate < job.limits.rate_per_s and left > rate * step_s:
        left, seconds, rate = left - rate * step_s, seconds + step_s, rate * 2
    return seconds + left / rate


def trouble(job: ResendJob, counts: Sequence[JobCount], troubled: int) -> str:
    """Returns why the job must pause: the share of bad ends since its baseline; empty if it need not."""
    sent = fate_sum(counts, ItemFate.SENT) - job.baseline.sent
    bad = fate_sum(counts, ItemFate.FAILED) - job.baseline.failed + troubled
    seen = sent + bad
    if bad <= 0 or seen < min(SAMPLE, canary_size(job)) or bad / seen < job.limits.error_rate:
        return ""
    return f"{bad:,} of {seen:,} failed or are in doubt ({bad / seen:.0%})"
