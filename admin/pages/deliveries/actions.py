"""Actions of a person on one delivery. Each action has a reason and a row in the audit before it.

The form carries the state that the person saw. If the row is another one by now, nothing is done, and the
person is told what it became.

A copy's id follows from the person and the delivery. A person who asks again, from whichever page, makes no
further copy; for one more, the copy itself is copied.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from litestar import post
from litestar.params import FromPath

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.deliveries.delivery_facts import row_of
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import Conflict, SentForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from backends.kafka.clients import KafkaTrouble
from idempotency.recovery.selection import Pick, Picks
from idempotency.search.store import SearchRow
from message.states import OPEN, State
from recovery.operator_results import OperatorResult, OperatorVerdict
from recovery.operator_rules import DECIDES, OperatorNote, Verb, refusal
from recovery.recall.recall import RecallVerdict
from recovery.resend.errors import ResendNotDone

COPY: Final = "copy"
ASK: Final = "ask"
RECALL: Final = "recall"
ACTIONS: Final = (
    *(Verb.AGAIN.value, ASK, Verb.ARRIVED.value, Verb.NOT_ARRIVED.value, Verb.ACCEPT_RISK.value),
    *(COPY, RECALL, Verb.DISCARD.value),
)
"""In the order of the page: what sends or settles it first, what ends it last."""
COPIED_BEFORE: Final = OperatorVerdict.COPIED_BEFORE.value
NEWS: Final = frozenset({*ACTIONS, COPIED_BEFORE})
"""Orders, and their outcome, that a delivery's page tells of."""
DANGEROUS: Final = frozenset({Verb.ACCEPT_RISK.value, COPY, RECALL, Verb.DISCARD.value})
_SENT: Final = (State.SENT, State.DELIVERED, State.UNDELIVERED)


class ActionChoice(NamedTuple):
    """One action on the page."""

    name: str
    why_not: str
    """Key of the reason why it is refused now; empty: it may be done."""
    danger: bool


def seen_of(pick: Pick | None) -> str:
    """Returns the text by which an action knows the row again; empty for an archived one."""
    if pick is None:
        return ""
    return f"{pick.state.value}.{pick.attempt}.{pick.updated_at}"


def choices_of(pick: Pick | None) -> list[ActionChoice]:
    """Returns every action, with the reason against those that are refused; `pick` None: archived."""
    return [ActionChoice(name, _why_not(name, pick), name in DANGEROUS) for name in ACTIONS]


def _why_not(action: str, pick: Pick | None) -> str:
    if pick is None:
        return "" if action == COPY else "deliveries.why_archived"
    if action == COPY:
        return "deliveries.why_open" if pick.state in OPEN else ""
    if action == ASK:
        return "" if pick.state is State.UNKNOWN else "deliveries.why_no_doubt"
    if action == RECALL:
        ended = pick.state in (State.DROPPED, State.REJECTED, State.EXPIRED)
        return "deliveries.why_not_sent" if ended else ""
    return _words_against(Verb(action), pick) if refusal(Verb(action), pick) else ""


def _words_against(verb: Verb, pick: Pick) -> str:
    """Returns the key of the words for a refusal of `operator_rules.refusal`."""
    if pick.state is State.IN_FLIGHT:
        return "deliveries.why_under_way"
    if pick.state in _SENT:
        return "deliveries.why_sent"
    if pick.recalled and verb is not Verb.DISCARD:
        return "deliveries.why_recalled"
    if pick.state is State.DROPPED:
        return "deliveries.why_dropped"
    if verb is Verb.DISCARD:
        return "deliveries.why_ended"
    if verb in DECIDES:
        return "deliveries.why_no_doubt"
    return "deliveries.why_doubt" if pick.state is State.UNKNOWN else "deliveries.why_behind"


@post(
    "/deliveries/{key:str}/act",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def act(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, key: FromPath[str]
) -> Page:
    """Does one action. Raises Missing, Forbidden, WrongForm, Conflict, LedgerError."""
    row = row_of(parts, key, person)
    person.require(Role.OPERATOR, row.lane)
    action, reason = form.required("action"), form.reason()
    if action not in ACTIONS:
        raise Missing(action)
    pick = _seen_pick(parts, view, form, row)
    if why := _why_not(action, pick):
        raise Conflict("deliveries.refused", why=view.text(why))
    _record(parts, view, person, row, action, reason)
    own = _done(parts, action, pick, row, OperatorNote(person.name, reason))
    return view.redirect(form.text("back") or own)


def _seen_pick(parts: ConsoleParts, view: View, form: SentForm, row: SearchRow) -> Pick | None:
    """Returns the row as the primary has it; None for an archived one. Raises Conflict if it is not as the
    person saw it."""
    if row.where:
        return None
    databases = parts.databases
    pick = Picks(databases.primary, databases.clock).keyed(row.delivery_key)
    if pick is None:
        raise Conflict("deliveries.gone")
    if seen_of(pick) != form.text("seen"):
        raise Conflict("deliveries.moved", state=pick.state.value, reason=pick.reason or "–")
    return pick


def _record(
    parts: ConsoleParts, view: View, person: Person, row: SearchRow, action: str, reason: str
) -> None:
    parts.journal.record_alone(
        person=person.name,
        action=f"delivery.{action}",
        subject=row.delivery_key,
        lane=row.lane,
        reason=reason,
        address=view.address,
    )


def _done(
    parts: ConsoleParts,
    action: str,
    pick: Pick | None,
    row: SearchRow,
    note: OperatorNote,
) -> str:
    """Does it. Returns the address of the page that shows the result. Raises Conflict."""
    own = f"/deliveries/{row.delivery_key}?done={action}"
    if action == RECALL:
        found = parts.desk.recall(row.message_id).deliveries
        mine = next((one for one in found if one.delivery_key == row.delivery_key), None)
        if mine is not None and mine.verdict in (
            RecallVerdict.TOO_LATE,
            RecallVerdict.NOT_POSSIBLE,
        ):
            raise Conflict("deliveries.recall_late", why=mine.why)
        return own
    job = f"console-{note.author}"
    try:
        if pick is None:
            result = parts.desk.copy_archived(row.delivery_key, note, job)
        else:
            result = parts.desk.act(action, pick, note, job)
    except (KafkaTrouble, ResendNotDone) as exc:
        raise Conflict("deliveries.kafka_away", reason=str(exc)) from exc
    _check(parts, result)
    if result is None or not result.new_id:
        return own
    if result.verdict is OperatorVerdict.COPIED_BEFORE:
        own = f"/deliveries/{row.delivery_key}?done={COPIED_BEFORE}"
    return f"{own}&copied={result.new_id}"


def _check(parts: ConsoleParts, result: OperatorResult | None) -> None:
    """Raises Conflict for an action that was refused or overtaken."""
    if result is None:
        raise Conflict("deliveries.gone")
    if result.verdict is OperatorVerdict.REFUSED:
        raise Conflict("deliveries.refused", why=result.detail)
    if result.verdict is OperatorVerdict.OVERTAKEN:
        databases = parts.databases
        pick = Picks(databases.primary, databases.clock).keyed(result.delivery_key)
        if pick is None:
            raise Conflict("deliveries.gone")
        raise Conflict("deliveries.moved", state=pick.state.value, reason=pick.reason or "–")


HANDLERS = [act]
