"""`/outbox`: parked rows, one notification by its id, release and recall.

No page shows content, key or receiver. A row belongs to the lane of its topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get, post
from litestar.params import FromQuery

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.outbox.database import (
    OpenedOutboxPage,
    may_outbox,
    opened_outbox,
    outbox_lane,
)
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import Conflict, SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.paging import cursor as cursor_of
from admin.web.paging import keys_of
from admin.web.view import Page, View, query
from hongyan_client.outbox.operator_orders import OutboxRow
from hongyan_client.outbox.tables import PARKED, PENDING, STATES
from producer.relay.opening import OutboxUnread
from tracing.masks import impersonal

_PER_PAGE: Final = 100
_ONE: Final = "/outbox/one"
"""An id has any printable characters, also those that have a meaning in a path."""
_RELEASE: Final = "release"
_RECALL: Final = "recall"


@get("/outbox", opt=needs(Role.VIEWER), sync_to_thread=True)
def parked_rows(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    notification: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """Parked rows of one's lanes, the oldest first; with `notification` its rows, in any state."""
    if not parts.settings.relay.outbox_url:
        return view.page("outbox/unused.html")
    asked, first = notification.strip(), keys_of(after, int) or 0
    try:
        with opened_outbox(parts) as outbox:
            found = _parked(outbox, first) if not asked else outbox.operator.of_message(asked)
            whole = outbox.whole() if person.everywhere(Role.VIEWER) else None
    except OutboxUnread as away:
        return _away(view, away)
    further = not asked and len(found) > _PER_PAGE
    some = found[:_PER_PAGE]
    return view.page(
        "outbox/list.html",
        rows=[one for one in some if may_outbox(parts, person, Role.VIEWER, one)],
        whole=whole,
        states=STATES,
        asked=asked,
        next=cursor_of(some[-1].id) if further else "",
        masked=impersonal,
    )


@get(_ONE, opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def one_notification(
    view: GivenView, parts: GivenParts, person: GivenPerson, notification: FromQuery[str] = ""
) -> Page:
    """The rows of one notification. Raises Missing."""
    _configured(parts)
    try:
        with opened_outbox(parts) as outbox:
            rows = _rows_of(outbox, parts, person, notification)
    except OutboxUnread as away:
        return _away(view, away)
    may = all(may_outbox(parts, person, Role.OPERATOR, one) for one in rows)
    return view.page(
        "outbox/one.html",
        notification=notification,
        rows=rows,
        operates=may,
        releases=may and _ready(rows, _RELEASE),
        recalls=may and _ready(rows, _RECALL),
        masked=impersonal,
    )


@post("/outbox/release", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def release_notification(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm
) -> Page:
    """Has its parked rows published again. Raises Missing, Forbidden, WrongForm, Conflict."""
    return _ordered(view, parts, person, form, _RELEASE)


@post("/outbox/recall", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def recall_notification(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm
) -> Page:
    """Takes back its rows that have certainly not gone. Raises Missing, Forbidden, WrongForm, Conflict."""
    return _ordered(view, parts, person, form, _RECALL)


def _ordered(
    view: View,
    parts: ConsoleParts,
    person: Person,
    form: SentForm,
    verb: str,
) -> Page:
    """Carries out the order. The audit is in another database, and has its row first."""
    _configured(parts)
    notification = form.exactly("notification")
    try:
        with opened_outbox(parts) as outbox:
            rows = _rows_of(outbox, parts, person, notification)
            for one in rows:
                if not may_outbox(parts, person, Role.OPERATOR, one):
                    person.require(Role.OPERATOR, outbox_lane(parts, one) or "*")
            reason = form.reason()
            if not _ready(rows, verb):
                raise Conflict(f"outbox.not_{verb}")
            parts.journal.record_alone(
                person=person.name,
                action=f"outbox_row.{verb}",
                subject=notification,
                lane=outbox_lane(parts, rows[0]),
                reason=reason,
                address=view.address,
            )
            order = outbox.operator.release if verb == _RELEASE else outbox.operator.recall
            if not order(notification, person.name, reason):
                raise Conflict(f"outbox.not_{verb}")
    except OutboxUnread as away:
        raise WrongForm("outbox.away", cause=str(away)) from away
    return view.redirect(_ONE + query(notification=notification))


def _parked(outbox: OpenedOutboxPage, after: int) -> list[OutboxRow]:
    return outbox.operator.rows((PARKED,), _PER_PAGE + 1, after)


def _rows_of(
    outbox: OpenedOutboxPage, parts: ConsoleParts, person: Person, notification: str
) -> list[OutboxRow]:
    """Returns its rows. Raises Missing without one, and for one of a foreign lane."""
    rows = outbox.operator.of_message(notification)
    if not rows or not all(may_outbox(parts, person, Role.VIEWER, one) for one in rows):
        raise Missing(notification)
    return rows


def _ready(rows: Sequence[OutboxRow], verb: str) -> bool:
    """Returns whether one of the rows can be released, or taken back."""
    if verb == _RELEASE:
        return any(one.state == PARKED for one in rows)
    return any(one.state in (PENDING, PARKED) and not one.maybe_sent for one in rows)


def _configured(parts: ConsoleParts) -> None:
    """Raises Missing without an outbox."""
    if not parts.settings.relay.outbox_url:
        raise Missing("relay.outbox_url")


def _away(view: View, away: OutboxUnread) -> Page:
    return view.page("outbox/away.html", cause=str(away))


HANDLERS = [parked_rows, one_notification, release_notification, recall_notification]
