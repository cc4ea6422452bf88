"""`/alerts`: open and past alerts, their acknowledgements and silences, and what to do about each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from litestar import get, post
from litestar.params import FromPath, FromQuery

from admin.access import OF_ROW, Person, Role, needs
from admin.live.spec import BoardSpec
from admin.pages.fleet.orders import TIMES, ordered, time_ms
from admin.pages.fleet.runbook import section
from admin.pages.live import board_text
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import Conflict, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from idempotency.alerts.book import AlertBook, AlertShown, SilenceShown
from idempotency.alerts.windows import FIRING
from sending.alerts.notifier import RULES, runbook

EVERY_S: Final = 2.0
_MOST_PAST: Final = 200


class AlertsBoard(NamedTuple):
    """The content of `/alerts`: open alerts first, those that nobody noted before the others."""

    open: Sequence[AlertShown]
    past: Sequence[AlertShown]
    silences: Sequence[SilenceShown]
    now_ms: int


def _reader(parts: ConsoleParts) -> Callable[[], AlertsBoard]:
    book = AlertBook(parts.databases.reads, parts.databases.reads_clock)

    def read() -> AlertsBoard:
        every = book.alerts(every=True)
        fires = sorted((one for one in every if one.state == FIRING), key=_urgency)
        past = sorted((one for one in every if one.state != FIRING), key=lambda one: -one.last_at)
        return AlertsBoard(fires, past[:_MOST_PAST], book.silences(), book.now_ms())

    return read


def _urgency(alert: AlertShown) -> tuple[bool, bool, int]:
    return alert.silenced_until is not None, alert.acknowledged_at is not None, alert.since


def may_see(lane: str, person: Person) -> bool:
    """Returns whether the person may see an alert of this lane; one without a lane is for all."""
    return not lane or person.may(Role.VIEWER, lane)


def _shown(value: AlertsBoard, person: Person) -> AlertsBoard:
    return value._replace(
        open=[one for one in value.open if may_see(one.lane, person)],
        past=[one for one in value.past if may_see(one.lane, person)],
        silences=[one for one in value.silences if may_see(_lane_of(one.subject), person)],
    )


def _lane_of(subject: str) -> str:
    """Returns the lane that a silence's subject begins with; empty for another subject."""
    first = subject.partition(" ")[0]
    return first if "." in first else ""


BOARD: Final = BoardSpec("alerts", EVERY_S, _reader, "live/alerts.html", shown=_shown)


@get("/alerts", opt=needs(Role.VIEWER), sync_to_thread=True)
def alerts(view: GivenView, parts: GivenParts, person: GivenPerson) -> Page:
    """The alerts, live."""
    value = parts.boards[BOARD.name].now()
    return view.page(
        "fleet/alerts.html",
        live=board_text(BOARD, value, view, person),
        rules=sorted(RULES),
        may=person.everywhere(Role.OPERATOR),
        times=TIMES,
    )


@get("/alerts/{rule:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def alert_page(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    rule: FromPath[str],
    subject: FromQuery[str] = "",
) -> Page:
    """One alert or silence: text, orders, and its section of the runbook. Raises Missing."""
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    named = [one for one in book.silences() if (one.rule, one.subject) == (rule, subject)]
    silence = named[0] if named and may_see(_lane_of(subject), person) else None
    found = _search(parts, person, rule, subject)
    if found is None and silence is None:
        raise Missing(rule)
    return view.page(
        "fleet/alert.html",
        rule=rule,
        subject=subject,
        alert=found,
        silence=silence,
        runbook=section(rule),
        place=runbook(rule),
        may=_may(person, found.lane if found is not None else _lane_of(subject)),
        times=TIMES,
    )


@post("/alerts/acknowledge", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def acknowledge(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Notes that a person looks after the alert. Raises Missing, Forbidden, WrongForm, Conflict."""
    reason, rule, subject = form.reason(), form.required("rule"), form.text("subject")
    alert = _operated(parts, person, rule, subject)
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    name = f"{rule} {subject}".strip()
    ordering = ordered(
        view, parts, person, "alert.acknowledge", name, reason=reason, lanes=alert.lane
    )
    with ordering as order:
        if not book.acknowledge_in(order, rule, subject, author=person.name, reason=reason):
            raise Conflict("alerts.over", name=name)
    return view.redirect("/alerts")


@post("/alerts/silence", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def silence(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Silences an alert, or every alert of a rule, for a time. Raises Missing, Forbidden, WrongForm."""
    reason, rule, subject = form.reason(), form.required("rule"), form.text("subject")
    for_ms = time_ms(form)
    if for_ms is None:
        raise WrongForm("fleet.bad_time", "for")
    lane = _silenced_lane(parts, person, rule, subject)
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    name = f"{rule} {subject}".strip()
    ordering = ordered(view, parts, person, "alert.silence", name, reason=reason, lanes=lane)
    with ordering as order:
        book.silence_in(order, rule, subject, for_ms, author=person.name, reason=reason)
    return view.redirect("/alerts")


@post("/alerts/unsilence", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def unsilence(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Ends a silence. Raises Forbidden, WrongForm; Conflict if there is none."""
    reason, rule, subject = form.reason(), form.required("rule"), form.text("subject")
    lane = _lane_of(subject)
    _require(person, lane)
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    name = f"{rule} {subject}".strip()
    ordering = ordered(view, parts, person, "alert.unsilence", name, reason=reason, lanes=lane)
    with ordering as order:
        if not book.unsilence_in(order, rule, subject):
            raise Conflict("alerts.no_silence", name=name)
    return view.redirect("/alerts")


def _silenced_lane(parts: ConsoleParts, person: Person, rule: str, subject: str) -> str:
    """Returns the lane of the alert to silence; empty for a whole rule. Raises Missing, Forbidden,
    WrongForm."""
    if subject:
        return _operated(parts, person, rule, subject).lane
    if rule not in RULES:
        raise WrongForm("alerts.no_rule", "rule")
    _require(person, "")
    return ""


def _search(parts: ConsoleParts, person: Person, rule: str, subject: str) -> AlertShown | None:
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    for one in book.alerts(every=True):
        if (one.rule, one.subject) == (rule, subject) and may_see(one.lane, person):
            return one
    return None


def _operated(parts: ConsoleParts, person: Person, rule: str, subject: str) -> AlertShown:
    found = _search(parts, person, rule, subject)
    if found is None:
        raise Missing(rule)
    _require(person, found.lane)
    return found


def _may(person: Person, lane: str) -> bool:
    return person.may(Role.OPERATOR, lane) if lane else person.everywhere(Role.OPERATOR)


def _require(person: Person, lane: str) -> None:
    """An alert without a lane is about the whole fleet. Raises Forbidden."""
    if not _may(person, lane):
        person.require(Role.OPERATOR, lane or "*.*")


HANDLERS = [alerts, alert_page, acknowledge, silence, unsilence]
BOARDS = [BOARD]
