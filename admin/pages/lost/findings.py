"""`/lost`: findings by cause, lane and status; one of them with its proof; resend and dismiss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import get, post
from litestar.params import FromPath, FromQuery
from sqlalchemy import Connection

from admin.access import OF_ROW, Person, Role, needs
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page, View
from idempotency.lost.findings import Finding, FindingFilter, FindingStatus, LostFindings
from idempotency.lost.runs import Runs
from message.loss import LossCause
from message.vocabulary import LANES
from recovery.lost.evidence import ledger_evidence
from recovery.lost.orders import UNDECIDED, FindingOrder, order_findings, refusal_of

_PER_PAGE: Final = 100
_OPEN: Final = "open"
"""Value of the status filter for undecided findings."""
_ALL: Final = "all"


@get("/lost", opt=needs(Role.VIEWER), sync_to_thread=True)
def lost_findings(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    status: FromQuery[str] = _OPEN,
    cause: FromQuery[str] = "",
    lane: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """The findings, the newest first. Raises WrongForm."""
    lanes = _lanes(person, lane)
    wanted = FindingFilter(
        _statuses(status), lanes, _causes(cause), before=keys_of(after, int) or 0
    )
    nothing = not lanes and not person.everywhere(Role.VIEWER)
    findings = _reading(parts)
    found = [] if nothing else findings.select(wanted, _PER_PAGE + 1)
    rows = page_of(found, _PER_PAGE, lambda one: one.id)
    return view.page(
        "lost/findings.html",
        rows=rows,
        chosen=status,
        cause=cause,
        lane=lane,
        statuses=[_OPEN, _ALL, *FindingStatus],
        causes=list(LossCause),
        lanes=person.among([one.name for one in LANES]),
        run=Runs(parts.databases.reads, parts.databases.reads_clock).newest("lost"),
    )


@get("/lost/{finding:int}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def one_finding(
    view: GivenView, parts: GivenParts, person: GivenPerson, finding: FromPath[int]
) -> Page:
    """One finding, its proof, and the delivery in the ledger of now. Raises Missing."""
    return _page(view, parts, person, finding)


@post(
    "/lost/{finding:int}/resend",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def resend_finding(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    finding: FromPath[int],
) -> Page:
    """Has recovery enter and send it. Its number is typed again. Raises Missing, Forbidden."""
    return _ordered(view, parts, person, form, finding, FindingOrder.RESEND)


@post(
    "/lost/{finding:int}/dismiss",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def dismiss_finding(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    finding: FromPath[int],
) -> Page:
    """Ends it without a send. Raises Missing, Forbidden."""
    return _ordered(view, parts, person, form, finding, FindingOrder.DISMISS)


def _ordered(
    view: View,
    parts: ConsoleParts,
    person: Person,
    form: SentForm,
    number: int,
    order: FindingOrder,
) -> Page:
    """Gives the order, with its row in the audit. An order that comes too late says what it became."""
    found = _found(parts, person, number)
    person.require(Role.OPERATOR, found.lane)
    try:
        reason = form.reason()
        if order is FindingOrder.RESEND and form.number("typed") != number:
            raise WrongForm("lost.typed_wrong", "typed", number=number)
    except WrongForm as wrong:
        refusal = view.refusal(wrong.key, wrong.arguments)
        return _page(view, parts, person, number, status=422, refused=refusal)

    def also(connection: Connection, ids: set[int]) -> None:
        if number in ids:
            parts.journal.record(
                connection,
                person=person.name,
                action=f"lost.{order}",
                subject=str(number),
                lane=found.lane,
                reason=reason,
                address=view.address,
            )

    (result,) = order_findings(
        parts.ledger.findings(), order, [found], who=person.name, why=reason, also=also
    )
    if result.failed:
        refusal = result.why or view.text("lost.overtaken")
        return _page(view, parts, person, number, status=409, refused=refusal)
    return view.redirect(f"/lost/{number}")


def _page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    number: int,
    *,
    status: int = 200,
    refused: str = "",
) -> Page:
    found = _found(parts, person, number)
    settings = parts.settings
    archived = parts.ledger.archived(settings.recovery.archive_dir, settings.base)
    context: dict[str, Any] = {
        "one": found,
        "evidence": ledger_evidence(found, parts.ledger.queries().by_key, archived),
        "run": Runs(parts.databases.reads, parts.databases.reads_clock).numbered(found.last_run),
        "operates": person.may(Role.OPERATOR, found.lane),
        "no_resend": refusal_of(FindingOrder.RESEND, found),
        "no_dismiss": refusal_of(FindingOrder.DISMISS, found),
    }
    return view.page("lost/finding.html", status=status, refused=refused, **context)


def _found(parts: ConsoleParts, person: Person, number: int) -> Finding:
    """Returns a finding as the primary has it. Raises Missing, for one of another lane, too."""
    for one in parts.ledger.findings().named(str(number)):
        if one.id == number and _may_view(person, one.lane):
            return one
    raise Missing(str(number))


def _may_view(person: Person, lane: str) -> bool:
    return person.may(Role.VIEWER, lane) if lane else person.everywhere(Role.VIEWER)


def _reading(parts: ConsoleParts) -> LostFindings:
    return parts.ledger.findings().on(parts.databases.reads, parts.databases.reads_clock)


def _lanes(person: Person, lane: str) -> list[str]:
    """Returns the lanes whose findings are listed; none for a person who may see all. Raises WrongForm."""
    if lane:
        if not person.may(Role.VIEWER, lane):
            raise WrongForm("lost.no_lane", "lane", lane=lane[:40])
        return [lane]
    if person.everywhere(Role.VIEWER):
        return []
    return person.among([one.name for one in LANES])


def _statuses(status: str) -> Sequence[str]:
    if status == _ALL:
        return ()
    if status == _OPEN:
        return [one.value for one in UNDECIDED]
    if status not in list(FindingStatus):
        raise WrongForm("lost.no_status", "status")
    return [status]


def _causes(cause: str) -> Sequence[str]:
    if cause and cause not in list(LossCause):
        raise WrongForm("lost.no_cause", "cause")
    return [cause] if cause else ()


HANDLERS = [lost_findings, one_finding, resend_finding, dismiss_finding]
