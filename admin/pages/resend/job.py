"""`/resend/JOB`: its preview, its progress, its items, and its failures as CSV.

The progress comes from the board of the list: all who watch jobs share its reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from litestar import get
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.resend.access import JobShown, may_act, may_approve, may_view
from admin.pages.resend.jobs import BOARD
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import WrongForm
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page, View, query
from idempotency.resend_jobs.contract import ItemFate, JobState, ResendJob
from idempotency.resend_jobs.items import JobItems
from idempotency.resend_jobs.store import ResendJobStore
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.factory import actions_on
from recovery.resend_jobs.failures import csv_lines
from recovery.resend_jobs.rules import ramp_rate, waiting_until

_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]")
_PER_PAGE: Final = 100
_LINES: Final = 500
"""Lines of one piece of the CSV."""


@get("/resend/{job:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def one_job(view: GivenView, parts: GivenParts, person: GivenPerson, job: FromPath[str]) -> Page:
    """One job, from the primary. Raises Missing."""
    return job_page(view, parts, person, job)


@get("/resend/{job:str}/live", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def job_progress(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    job: FromPath[str],
    version: FromQuery[int] = 0,
    was: FromQuery[str] = "",
) -> Page:
    """The live part of the page. A job in another state has the whole page loaded again. Raises Missing."""
    board = parts.boards[BOARD.name].now()
    listed = board.value.jobs if board.value is not None else ()
    found = next((one for one in listed if one.job.id == job), None)
    if found is None:
        found = _read(parts, job)
    if not may_view(person, found):
        raise Missing(job)
    moved = found.job.version > version and found.job.state.value != was
    headers = {"HX-Refresh": "true"} if moved else {}
    return view.page("resend/progress.html", headers=headers, board=board, **_live(found))


@get("/resend/{job:str}/items", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def job_items(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    job: FromPath[str],
    fate: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """The fate of each item, in the order of the keys. Raises Missing, WrongForm."""
    found = _read(parts, job)
    if not may_view(person, found):
        raise Missing(job)
    if fate and fate not in list(ItemFate):
        raise WrongForm("resend.bad_fate", "fate")
    fates = [ItemFate(fate)] if fate else []
    items = JobItems(parts.databases.reads, parts.databases.reads_clock)
    place = keys_of(after, str) or ""
    some = page_of(
        items.page(job, place, _PER_PAGE + 1, *fates), _PER_PAGE, lambda item: item.delivery_key
    )
    return view.page("resend/items.html", shown=found, rows=some, fate=fate, fates=list(ItemFate))


@get("/resend/{job:str}/failures.csv", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def job_failures(parts: GivenParts, person: GivenPerson, job: FromPath[str]) -> Stream:
    """The items that failed or were refused, as CSV; piece by piece. Raises Missing."""
    if not may_view(person, _read(parts, job)):
        raise Missing(job)
    items = JobItems(parts.databases.reads, parts.databases.reads_clock)
    name = _STRANGE.sub("-", job)
    headers = {"content-disposition": f'attachment; filename="{name}-failures.csv"'}
    lines = csv_lines(items.failures(job))
    return Stream(_pieces(lines), media_type="text/csv; charset=utf-8", headers=headers)


def shown_job(parts: ConsoleParts, person: Person, job: str) -> JobShown:
    """Returns a job as the primary has it. Raises Missing."""
    actions = actions_on(parts.ledger)
    try:
        found = actions.get(job)
    except ResendJobRefused:
        raise Missing(job) from None
    shown = JobShown(found, parts.ledger.job_items().counts(job))
    if not may_view(person, shown):
        raise Missing(job)
    return shown


def job_page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    job: str,
    *,
    status: int = 200,
    refused: str = "",
) -> Page:
    """Returns the page of a job; `refused` says why an order was refused. Raises Missing."""
    shown = shown_job(parts, person, job)
    preview = actions_on(parts.ledger).preview(job)
    return view.page(
        "resend/job.html",
        status=status,
        refused=refused,
        preview=preview,
        operates=may_act(person, Role.OPERATOR, shown),
        approves=may_approve(person, shown),
        again=_again(shown.job),
        board=None,
        **_live(shown),
    )


def _read(parts: ConsoleParts, job: str) -> JobShown:
    """Returns a job as the reading database has it. Raises Missing."""
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    found = ResendJobStore(reads, clock).get(job)
    if found is None:
        raise Missing(job)
    return JobShown(found, JobItems(reads, clock).counts(job))


def _live(shown: JobShown) -> dict[str, Any]:
    """Returns the values of the live part."""
    job = shown.job
    until = waiting_until(job) if job.state is JobState.WAITING else job.preview_until
    return {"shown": shown, "job": job, "until": until, "ramp": lambda now: ramp_rate(job, now)}


def _again(job: ResendJob) -> str:
    """Returns the address of the form with this job's selection; empty for a job by ids."""
    wanted = job.wanted
    if not wanted.states:
        return ""
    return "/resend/new" + query(
        states=",".join(wanted.states),
        lanes=",".join(wanted.lanes),
        since=wanted.since,
        until=wanted.until or "",
        account=wanted.account,
        template=wanted.template,
        code=wanted.reason,
    )


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    for first in lines:
        yield "".join(chain([first], islice(lines, _LINES - 1)))


HANDLERS = [one_job, job_progress, job_items, job_failures]
