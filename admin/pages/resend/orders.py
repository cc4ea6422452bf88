"""Orders of a person about a job: start, approve, pause, resume, cancel; each with a row in the audit."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from admin.access import Person, Role
from admin.pages.job_orders import OrderedWork, OrderGiven, order_routes
from admin.pages.resend.access import require_all
from admin.pages.resend.job import job_page, shown_job
from admin.parts import ConsoleParts
from admin.web.view import View
from idempotency.resend_jobs.contract import JobState, ResendJob
from recovery.resend_jobs.actions import ResendJobActions
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.factory import actions_on

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


def _require(parts: ConsoleParts, person: Person, role: Role, job: str) -> None:
    require_all(person, role, shown_job(parts, person, job))


def _obey(asked: OrderGiven) -> None:
    """The preview's signature comes with the form of a start and an approval; at a start the count is typed
    again."""
    actions = actions_of(asked.parts, asked.person, asked.view, asked.order, asked.reason)
    job, who, reason, form = asked.job, asked.person.name, asked.reason, asked.form
    match asked.order:
        case "start":
            count, signed = form.number("typed"), form.required("signature")
            actions.start(job, signed, typed=count, who=who, reason=reason)
        case "approve":
            actions.approve(job, form.required("signature"), who=who)
        case "pause":
            actions.pause(job, who=who, reason=reason)
        case "resume":
            actions.resume(job, who=who, reason=reason)
        case "cancel":
            actions.cancel(job, who=who, reason=reason)


JOBS = OrderedWork("/resend", _require, _obey, job_page, ResendJobRefused)
HANDLERS = order_routes(
    JOBS,
    (
        ("start", Role.OPERATOR),
        ("approve", Role.APPROVER),
        ("pause", Role.OPERATOR),
        ("resume", Role.OPERATOR),
        ("cancel", Role.OPERATOR),
    ),
)
