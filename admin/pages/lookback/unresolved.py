"""`/lookback`: the queue of unresolved transactions, the search by id, and COMMIT or ROLLBACK.

A transaction belongs to the lane of its topic. One without a lane, for it has no body yet or goes to a
foreign topic, belongs to those who have their role for all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get, post
from litestar.params import FromPath, FromQuery

from admin.access import OF_ROW, Person, Role, needs
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.paging import cursor as cursor_of
from admin.web.paging import keys_of
from admin.web.view import Page, View
from idempotency.error_mapping import errors
from lookback.desk import SqlLookbackDesk
from lookback.opening import open_lookback_desk
from lookback.operator import NotResolvable, TxDecision, TxShown
from lookback.states import TxState
from message.vocabulary import lane_of_topic

_PER_PAGE: Final = 100
_MOST_PAGES: Final = 50
"""Pages without a transaction of the person's lanes that one request passes over."""


@get("/lookback", opt=needs(Role.VIEWER), sync_to_thread=True)
def unresolved(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    kind: FromQuery[str] = "",
    name: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """The queue, the oldest first; with `name` the transactions of that tx_id or biz_id, in any state."""
    desk, name = _desk(parts), name.strip()
    if name:
        rows, further = _own(parts, person, desk.find(name)), ""
    else:
        rows, further = _queue(parts, person, kind, keys_of(after, str) or "")
    return view.page(
        "lookback/list.html",
        rows=rows,
        counts=desk.unresolved_counts() if person.everywhere(Role.VIEWER) else {},
        kinds=sorted(parts.settings.lookback.biz_types),
        kind=kind,
        name=name,
        next=cursor_of(further) if further else "",
        used=bool(parts.settings.lookback.biz_types),
    )


@get("/lookback/{tx:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def one_transaction(
    view: GivenView, parts: GivenParts, person: GivenPerson, tx: FromPath[str]
) -> Page:
    """One transaction, without its body. Raises Missing."""
    return _page(view, parts, person, tx)


@post(
    "/lookback/{tx:str}/decide",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def decide_transaction(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    tx: FromPath[str],
) -> Page:
    """Decides about it, with its row in the audit. A decision that comes too late says what it became.
    Raises Missing, Forbidden."""
    found = _found(parts, person, tx)
    lane = _lane(parts, found)
    if not _may(person, Role.OPERATOR, lane):
        person.require(Role.OPERATOR, lane or "*")
    try:
        decision, reason = _decision(form.text("decision")), form.reason()
    except WrongForm as wrong:
        refusal = view.refusal(wrong.key, wrong.arguments)
        return _page(view, parts, person, tx, status=422, refused=refusal)
    try:
        with errors(), parts.databases.primary.begin() as connection:
            _desk(parts).resolve_in(connection, tx, decision, person=person.name, reason=reason)
            parts.journal.record(
                connection,
                person=person.name,
                action=f"lookback.{decision.lower()}",
                subject=tx,
                lane=lane,
                reason=reason,
                address=view.address,
            )
    except NotResolvable as exc:
        return _page(view, parts, person, tx, status=409, refused=str(exc))
    return view.redirect(f"/lookback/{tx}")


def _queue(parts: ConsoleParts, person: Person, kind: str, after: str) -> tuple[list[TxShown], str]:
    """Returns the first page that has transactions of the person's lanes, and the name behind it."""
    desk = _desk(parts)
    for _ in range(_MOST_PAGES):
        page = desk.unresolved(biz_type=kind, after=after, limit=_PER_PAGE)
        rows, after = _own(parts, person, page.rows), page.after
        if rows or not after:
            return rows, after
    return [], after


def _own(parts: ConsoleParts, person: Person, rows: Sequence[TxShown]) -> list[TxShown]:
    """Returns those that the person may see."""
    return [one for one in rows if _may(person, Role.VIEWER, _lane(parts, one))]


def _page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    tx: str,
    *,
    status: int = 200,
    refused: str = "",
) -> Page:
    found = _found(parts, person, tx)
    lane = _lane(parts, found)
    return view.page(
        "lookback/one.html",
        status=status,
        refused=refused,
        one=found,
        lane=lane,
        waits=found.state is TxState.UNRESOLVED,
        operates=_may(person, Role.OPERATOR, lane),
    )


def _found(parts: ConsoleParts, person: Person, tx: str) -> TxShown:
    """Returns the transaction. Raises Missing, for one of another lane, too."""
    for one in _desk(parts).find(tx):
        if one.tx_id == tx and _may(person, Role.VIEWER, _lane(parts, one)):
            return one
    raise Missing(tx)


def _lane(parts: ConsoleParts, one: TxShown) -> str:
    """Returns the lane of its topic; empty without one."""
    lane = lane_of_topic(one.topic, parts.settings.kafka.topic_prefix)
    return lane.name if lane is not None else ""


def _may(person: Person, role: Role, lane: str) -> bool:
    return person.may(role, lane) if lane else person.everywhere(role)


def _decision(text: str) -> TxDecision:
    """Returns the decision of a form. Raises WrongForm."""
    try:
        return TxDecision(text)
    except ValueError:
        raise WrongForm("lookback.no_decision", "decision") from None


def _desk(parts: ConsoleParts) -> SqlLookbackDesk:
    return open_lookback_desk(parts.ledger, parts.settings)


HANDLERS = [unresolved, one_transaction, decide_transaction]
