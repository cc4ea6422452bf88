"""`/deliveries/KEY`: everything about one delivery, and what may be done with it.

Receiver and content are masked. A reveal is recorded first, and shows in its own answer alone.
"""

from __future__ import annotations

import re
from typing import Any, Final

from litestar import get, post
from litestar.params import FromPath, FromQuery

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.deliveries.actions import NEWS, choices_of, seen_of
from admin.pages.deliveries.delivery_facts import (
    DeliveryFacts,
    OpenedContents,
    channel_of,
    facts_of,
    opened_of,
    row_of,
)
from admin.pages.deliveries.request_preview import (
    MessageShown,
    RequestPreview,
    RevealedParts,
    message_shown,
    preview,
)
from admin.parts import ConsoleParts
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from channels.probe.meaning import meaning
from idempotency.search.store import SearchRow
from message.envelope import EnvelopeError

REVEALS: Final = ("receiver", "content")
_ID: Final = re.compile(r"[0-9a-f]{32}")


@get("/deliveries/{key:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def delivery(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    key: FromPath[str],
    done: FromQuery[str] = "",
    copied: FromQuery[str] = "",
) -> Page:
    """The page; `done` names the action that led here, `copied` its copy. Raises Missing, LedgerError."""
    row = row_of(parts, key, person)
    news = (done if done in NEWS else "", copied if _ID.fullmatch(copied) else "")
    return _page(view, parts, person, row, RevealedParts(), news)


@post(
    "/deliveries/{key:str}/reveal",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def reveal(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, key: FromPath[str]
) -> Page:
    """The page with receiver or content, after the audit has a row of it. Raises Missing, Forbidden,
    WrongForm, LedgerError."""
    row = row_of(parts, key, person)
    person.require(Role.OPERATOR, row.lane)
    what, reason = form.text("what"), form.reason()
    if what not in REVEALS:
        raise WrongForm("frame.field_missing", "what", name="what")
    parts.journal.record_alone(
        person=person.name,
        action=f"delivery.reveal_{what}",
        subject=row.delivery_key,
        lane=row.lane,
        reason=reason,
        address=view.address,
    )
    revealed = RevealedParts(receiver=what == "receiver", content=what == "content")
    return _page(view, parts, person, row, revealed)


def _page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    row: SearchRow,
    revealed: RevealedParts,
    news: tuple[str, str] = ("", ""),
) -> Page:
    opened = opened_of(parts, row)
    facts = facts_of(parts, row, opened, view.now_ms)
    own = f"/deliveries/{row.delivery_key}"
    return view.page(
        "deliveries/delivery.html",
        headers={"hx-push-url": own} if any(revealed) else {},
        facts=facts,
        row=row,
        revealed=revealed,
        operates=person.may(Role.OPERATOR, row.lane),
        choices=choices_of(facts.pick),
        done=news[0],
        copied=news[1],
        seen=seen_of(facts.pick),
        reaction=_reaction(parts, facts),
        **_message(parts, row, opened, revealed),
    )


def _reaction(parts: ConsoleParts, facts: DeliveryFacts) -> str:
    """Returns a worker's reaction to the provider's code, in English; empty without a known code."""
    channel = channel_of(parts, facts.row.account or "")
    if channel is None or not facts.code:
        return ""
    return meaning(channel.errors.outcome(facts.code), channel)


def _message(
    parts: ConsoleParts, row: SearchRow, opened: OpenedContents, revealed: RevealedParts
) -> dict[str, Any]:
    """Returns the message's parts and its request; the reason, where the payload cannot be read."""
    message, request, problem = MessageShown("", ""), RequestPreview(), opened.problem
    try:
        if opened.kept is not None:
            message = message_shown(row, opened.kept, revealed)
            request = preview(parts, row, opened.kept, revealed)
    except EnvelopeError:
        problem = "EnvelopeError"
    return {"message": message, "request": request, "unreadable": problem}


HANDLERS = [delivery, reveal]
