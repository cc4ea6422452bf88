"""Orders of a person about a job: start, approve, pause, resume, cancel; each with a row in the audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from litestar import post
from litestar.params import FromPath
from sqlalchemy import Connection

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.resend.access import JobShown, require_all
from admin.pages.resend.job import job_page, shown_job
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from idempotency.resend_jobs.contract import JobState, ResendJob
from recovery.resend_jobs.actions import ResendJobActions
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.factory import actions_on

Order = Callable[[ResendJobActions, str], object]
"""Gives one order; takes the actions and the reason."""
_ENDED_SO: Final = (JobState.REFUSED, JobState.LAPSED)


def actions_of(
    parts: ConsoleParts, person: Person, view: View, order: str, reason: str
) -> ResendJobActions:
    """Returns the actions, which write the order's row of the audit in their own transaction."""

    def also(connection: Connection, job: ResendJob) -> None:
        lanes = job.wanted.lanes
        parts.journal.record(
            connection,
            person=person.name,
            action=f"resend.{order}",
            subject=job.id,
            lane=lanes[0] if len(lanes) == 1 else "",
            reason=f"{job.state}: {reason}" if job.state in _ENDED_SO else reason,
            address=view.address,
        )

    return actions_on(parts.ledger, also)


@post(
    "/resend/{job:str}/start",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def start_job(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, job: FromPath[str]
) -> Page:
    """Starts a previewed job: the count is typed again, and the preview's signature comes with the form."""

    def give(actions: ResendJobActions, reason: str) -> object:
        count, signed = form.number("typed"), form.required("signature")
        return actions.start(job, signed, typed=count, who=person.name, reason=reason)

    return _given(view, parts, person, form, job, "start", give)


@post(
    "/resend/{job:str}/approve",
    opt=needs(Role.APPROVER, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def approve_job(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, job: FromPath[str]
) -> Page:
    """Lets a started job go on, as a second person."""

    def give(actions: ResendJobActions, _reason: str) -> object:
        return actions.approve(job, form.required("signature"), who=person.name)

    return _given(view, parts, person, form, job, "approve", give, Role.APPROVER)


@post(
    "/resend/{job:str}/pause",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def pause_job(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, job: FromPath[str]
) -> Page:
    """Pauses a job: nothing more is handed over."""

    def give(actions: ResendJobActions, reason: str) -> object:
        return actions.pause(job, who=person.name, reason=reason)

    return _given(view, parts, person, form, job, "pause", give)


@post(
    "/resend/{job:str}/resume",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def resume_job(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, job: FromPath[str]
) -> Page:
    """Resumes a paused job."""

    def give(actions: ResendJobActions, reason: str) -> object:
        return actions.resume(job, who=person.name, reason=reason)

    return _given(view, parts, person, form, job, "resume", give)


@post(
    "/resend/{job:str}/cancel",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def cancel_job(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, job: FromPath[str]
) -> Page:
    """Cancels a job, for good."""

    def give(actions: ResendJobActions, reason: str) -> object:
        return actions.cancel(job, who=person.name, reason=reason)

    return _given(view, parts, person, form, job, "cancel", give)


def _given(
    view: View,
    parts: ConsoleParts,
    person: Person,
    form: SentForm,
    job: str,
    order: str,
    give: Order,
    role: Role = Role.OPERATOR,
) -> Page:
    """Gives the order and shows the job. A refused order changes nothing, and its reason is on the page.
    Raises Missing, Forbidden."""
    shown: JobShown = shown_job(parts, person, job)
    require_all(person, role, shown)
    try:
        reason = form.reason()
        give(actions_of(parts, person, view, order, reason), reason)
    except WrongForm as wrong:
        said = view.told(wrong.key, wrong.arguments)
        return job_page(view, parts, person, job, status=422, refused=said)
    except ResendJobRefused as exc:
        return job_page(view, parts, person, job, status=409, refused=str(exc))
    return view.redirect(f"/resend/{quote(job, safe='')}")


HANDLERS = [start_job, approve_job, pause_job, resume_job, cancel_job]
