"""Output of `hongyan resend jobs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hongyan.tables import age, listing, local_time
from hongyan.terminal import out

if TYPE_CHECKING:
    from idempotency.resend_jobs.contract import ResendJob
    from recovery.resend_jobs.actions import JobPreview

_TITLES: Final = ("JOB", "STATE", "MODE", "WOULD GO", "OF", "MADE", "BY", "REASON", "NOTE")
_MS: Final = 1_000


def show_jobs(jobs: Sequence[ResendJob]) -> None:
    """Prints jobs as a listing."""
    from rich.text import Text

    table = listing(_TITLES, right=("WOULD GO", "OF"), whole=("JOB", "STATE", "MADE"))
    for job in jobs:
        cells = (
            *(job.id, job.state.value, job.mode.value, f"{job.eligible:,}", f"{job.items:,}"),
            *(local_time(job.created_at), job.author, job.reason, job.note or ""),
        )
        table.add_row(*map(Text, cells))
    out().print(table)


def show_preview(preview: JobPreview) -> None:
    """Prints a job with its counts, its sample and its next step."""
    job = preview.job
    lines = [f"{job.id}  {job.state.value}  {job.mode.value}"]
    lines += [f"made {local_time(job.created_at)} by {job.author}: {job.reason}"]
    if job.started_by:
        lines.append(
            f"started {_time(job.started_at)} by {job.started_by}: {job.start_reason or '-'}"
        )
    if job.approved_by:
        lines.append(f"approved {_time(job.approved_at)} by {job.approved_by}")
    if job.note:
        lines.append(f"note of {job.noted_by or '-'}: {job.note}")
    rate = f"at {job.limits.rate_per_s:g} a second"
    would = f"{job.eligible:,} of {job.items:,} deliveries would go"
    lines.append(f"{would} {rate}, in about {age(int(preview.duration_s * _MS))}")
    for line in lines:
        out().print(line, markup=False)
    _show_counts(preview)
    for item in preview.sample:
        out().print(f"sample {item.delivery_key}  {item.lane}  {item.state}", markup=False)
    if next_step := _next_step(preview):
        out().print(next_step, markup=False)


def _show_counts(preview: JobPreview) -> None:
    from rich.text import Text

    if not preview.counts:
        return
    table = listing(("LANE", "ACCOUNT", "FATE", "WHY", "NUMBER"), right=("NUMBER",))
    for one in preview.counts:
        cells = (one.lane or "-", one.account or "-", one.fate.value, one.why, f"{one.items:,}")
        table.add_row(*map(Text, cells))
    out().print(table)


def _next_step(preview: JobPreview) -> str:
    """Returns the command that a person would type next; empty without one."""
    job, signed = preview.job, f"--preview {preview.signature}"
    start = f"to start it: hongyan resend jobs start {job.id} {signed} --count {job.eligible}"
    steps = {
        "FREEZING": "recovery lists its deliveries: look again",
        "PREVIEW": f"{start} --reason TEXT (until {_time(job.preview_until)})",
        "WAITING": f"another person: hongyan resend jobs approve {job.id} {signed}",
        "PAUSED": f"to go on: hongyan resend jobs resume {job.id} --reason TEXT",
    }
    return steps.get(job.state.value, "")


def job_line(job: ResendJob) -> str:
    """Returns what became of a job by an order."""
    line = f"{job.id}  {job.state.value}"
    if job.state.value == "FREEZING":
        return f"{line}  its preview, soon: hongyan resend jobs show {job.id}"
    if job.state.value == "WAITING":
        return f"{line}  {job.eligible:,} deliveries: another person must approve"
    return line


def _time(at: int | None) -> str:
    return "-" if at is None else local_time(at)
