"""`/resend`: the newest jobs, live, and older ones page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from litestar import get
from litestar.params import FromQuery

from admin.access import Person, Role, needs
from admin.live.spec import BoardSpec
from admin.pages.live import board_text
from admin.pages.resend.access import JobShown, may_view
from admin.parts import ConsoleParts
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import cursor, keys_of
from admin.web.view import Page
from idempotency.resend_jobs.items import JobItems
from idempotency.resend_jobs.store import ResendJobStore

EVERY_S: Final = 2.0
PER_PAGE: Final = 50


class JobList(NamedTuple):
    """A page of jobs, the newest first."""

    jobs: Sequence[JobShown]
    next: str
    """Cursor of the next page; empty: this is the last one."""


def _reader(parts: ConsoleParts) -> Callable[[], JobList]:
    return lambda: read_jobs(parts, None)


def read_jobs(parts: ConsoleParts, before: tuple[int, str] | None) -> JobList:
    """Returns a page of jobs with their counts. Raises LedgerError."""
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    jobs = ResendJobStore(reads, clock)
    found = jobs.newest(PER_PAGE + 1, before) if before else jobs.newest(PER_PAGE + 1)
    some = found[:PER_PAGE]
    counts = JobItems(reads, clock).counts_of([job.id for job in some])
    further = cursor((some[-1].created_at, some[-1].id)) if len(found) > PER_PAGE else ""
    return JobList([JobShown(job, counts.get(job.id, [])) for job in some], further)


def _shown(value: JobList, person: Person) -> JobList:
    """Returns the jobs that the person may see."""
    return value._replace(jobs=[one for one in value.jobs if may_view(person, one)])


BOARD: Final = BoardSpec("resend", EVERY_S, _reader, "live/resend_jobs.html", shown=_shown)


@get("/resend", opt=needs(Role.VIEWER), sync_to_thread=True)
def resend_jobs(
    view: GivenView, parts: GivenParts, person: GivenPerson, after: FromQuery[str] = ""
) -> Page:
    """The newest jobs, live; older ones as they are now."""
    before = keys_of(after, tuple[int, str])
    if before is None:
        live = board_text(BOARD, parts.boards[BOARD.name].now(), view, person)
        return view.page("resend/jobs.html", live=live, value=None)
    return view.page("resend/jobs.html", live="", value=_shown(read_jobs(parts, before), person))


HANDLERS = [resend_jobs]
BOARDS = [BOARD]
