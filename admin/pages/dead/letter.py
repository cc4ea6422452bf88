"""`/dead/letter`: one letter, named by its origin. It is read from Kafka when somebody asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get, post
from litestar.params import FromQuery

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.dead.kafka import letter_at, replayed
from admin.pages.dead.lanes import (
    actions_of,
    letter_to_act_on,
    may_act_on,
    pages_of,
    visible_letter,
)
from admin.pages.dead.rendering import ShownLetter, shown_letter
from admin.parts import ConsoleParts
from admin.web.forms import Conflict
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View, query
from backends.kafka.clients import KafkaTrouble
from backends.settings import SettingsError
from idempotency.dead_letters.rows import IndexedLetter, LetterState
from idempotency.error_mapping import errors
from sending.dead_letters.replay import ReplayStatus

PATH: Final = "/dead/letter"
GONE: Final = "gone"
_DISCARDED: Final = "discarded"
_DONE: Final = frozenset({*map(str, ReplayStatus), GONE, _DISCARDED})
"""Outcomes of an action that the page names."""


@get(PATH, opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def letter(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    origin: FromQuery[str] = "",
    done: FromQuery[str] = "",
) -> Page:
    """The letter, masked. Raises Missing."""
    found = visible_letter(pages_of(parts), person, origin)
    return _page(view, parts, person, found, done=done if done in _DONE else "")


@post(f"{PATH}/reveal", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def reveal(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """The letter as it is, with its row in the audit first. Raises Missing, Forbidden, WrongForm."""
    found = letter_to_act_on(actions_of(parts), person, form.text("origin"))
    _recorded(view, parts, person, "dead.reveal", found, form.reason())
    return _page(view, parts, person, found, revealed=True)


@post(f"{PATH}/replay", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def replay(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Sends the letter to the topic of its origin. Raises Missing, Forbidden, WrongForm, Conflict."""
    found, reason = _open_letter(parts, person, form.text("origin")), form.reason()
    _recorded(view, parts, person, "dead.replay", found, reason)
    try:
        ((gone, results),) = replayed(parts, [found])
    except (KafkaTrouble, SettingsError) as exc:
        raise Conflict("dead.kafka_away_action", reason=exc) from exc
    if gone:
        return _redirect(view, found, GONE)
    (result,) = results
    if result.fate is ReplayStatus.REPLAYED:
        ended(parts, [found.origin], LetterState.REPLAYED, person, reason)
    return _redirect(view, found, result.fate)


@post(f"{PATH}/discard", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def discard(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Puts the letter away. Kafka keeps it all the same. Raises Missing, Forbidden, WrongForm, Conflict."""
    found, reason = _open_letter(parts, person, form.text("origin")), form.reason()
    with errors(), parts.databases.primary.begin() as connection:
        done = actions_of(parts).end(
            connection, [found.origin], LetterState.DISCARDED, person.name, reason
        )
        if not done:
            raise Conflict("dead.ended")
        parts.journal.record(
            connection,
            person=person.name,
            action="dead.discard",
            subject=found.origin,
            lane=found.lane,
            reason=reason,
            address=view.address,
        )
    return _redirect(view, found, _DISCARDED)


def ended(
    parts: ConsoleParts, origins: Sequence[str], state: LetterState, person: Person, why: str
) -> None:
    """Records that the person ended these letters. Raises LedgerError."""
    with errors(), parts.databases.primary.begin() as connection:
        actions_of(parts).end(connection, origins, state, person.name, why)


def _open_letter(parts: ConsoleParts, person: Person, origin: str) -> IndexedLetter:
    found = letter_to_act_on(actions_of(parts), person, origin)
    if not found.open:
        raise Conflict("dead.ended_by", state=found.state, who=found.ended_by or "hongyan dead")
    return found


def _recorded(
    view: View, parts: ConsoleParts, person: Person, action: str, found: IndexedLetter, reason: str
) -> None:
    parts.journal.record_alone(
        person=person.name,
        action=action,
        subject=found.origin,
        lane=found.lane,
        reason=reason,
        address=view.address,
    )


def _page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    found: IndexedLetter,
    *,
    done: str = "",
    revealed: bool = False,
) -> Page:
    shown, trouble = _read(parts, found, revealed)
    return view.page(
        "dead/letter.html",
        letter=found,
        shown=shown,
        trouble=trouble,
        revealed=revealed,
        done=done,
        acts=may_act_on(person, found),
    )


def _read(
    parts: ConsoleParts, found: IndexedLetter, revealed: bool
) -> tuple[ShownLetter | None, str]:
    """Returns the letter as text, or the reason for which Kafka cannot be read; neither: it is gone."""
    try:
        read = letter_at(parts.settings, found)
    except (KafkaTrouble, SettingsError) as exc:
        return None, str(exc)
    return (None if read is None else shown_letter(read, revealed=revealed)), ""


def _redirect(view: View, found: IndexedLetter, done: str) -> Page:
    return view.redirect(PATH + query(origin=found.origin, done=done))


HANDLERS = [letter, reveal, replay, discard]
