"""`/search`: the box with its explanation and completion, and pages of results.

A line is sent by POST. The answer leads to an address that holds the line, sealed if it may name a person.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from litestar import Response, get, post
from litestar.params import FromQuery

from admin.access import Person, Role, needs
from admin.pages.deliveries.result_rows import rows_of
from admin.pages.deliveries.search_line import (
    LineProblem,
    ResendLink,
    address_of,
    allowed,
    is_personal,
    problem_of,
    resend_link,
    search_of,
    words_of,
)
from admin.parts import ConsoleParts
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.paging import cursor, keys_of
from admin.web.sealing import SealBroken, sealed, unsealed
from admin.web.view import Page, View
from idempotency.archive.history import PastDeliveries
from idempotency.lookups import FoundRow
from idempotency.search.fields import RULES
from idempotency.search.language import DeliveryTerms, QueryError, parse
from idempotency.search.statements import Cursor
from idempotency.search.store import SearchPage, SearchRow
from idempotency.search.wording import completions
from message.vocabulary import LANES

EXAMPLES: Final = (
    "state:PARKED since:24h",
    "state:REJECTED,UNDELIVERED since:6h",
    "state:EXPIRED lane:*.verification since:24h",
    "state:UNKNOWN since:24h",
)
"""Searches that are offered beside an empty box."""


class SearchResult(NamedTuple):
    """The parts of the page."""

    line: str = ""
    words: str = ""
    problem: LineProblem | None = None
    found: SearchPage | None = None
    next: str = ""
    sealed: str = ""
    personal: bool = False
    """Whether the line may name a person: it cannot be saved."""
    resend: ResendLink = ResendLink()


@get("/search", opt=needs(Role.VIEWER), sync_to_thread=True)
def search(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    q: FromQuery[str] = "",
    s: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """The box, and a page of results. Raises WrongCursor, LedgerError."""
    line = q.strip()
    if s:
        try:
            line = unsealed(parts.settings.console.secret, person.id, s)
        except SealBroken:
            problem = LineProblem(view.text("search.seal_over"))
            return _page(view, parts, person, SearchResult(problem=problem))
    if not line:
        return _page(view, parts, person, SearchResult())
    try:
        terms = parse(line, view.now_ms)
        if q and is_personal(line, terms):
            return _by_button(view, parts, person, line, terms)
        return _results(view, parts, person, (line, s), terms, after)
    except QueryError as exc:
        return _refused(view, parts, person, line, exc)


@post("/search", opt=needs(Role.VIEWER), status_code=200, sync_to_thread=True)
def find(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Leads to the one delivery that the line finds, else to the address of its results."""
    line = form.text("q")
    if not line:
        return view.redirect("/search")
    try:
        terms = parse(line, view.now_ms)
        target = _only_hit(parts, person, terms) if terms.names or terms.place else ""
    except QueryError as exc:
        return _refused(view, parts, person, line, exc)
    return view.redirect(target or address_of(parts, person, line, terms))


@post("/search/complete", opt=needs(Role.VIEWER), status_code=200, sync_to_thread=True)
def complete(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm
) -> Response[bytes]:
    """Returns the words below the box for a line, and texts for its last term. A line may name a person,
    so that it comes by POST."""
    line = form.exactly("q")
    answer: dict[str, Any] = {"words": "", "problem": "", "options": []}
    try:
        if line.strip():
            answer["words"] = words_of(parse(line, view.now_ms), view.texts)
    except QueryError as exc:
        answer["problem"] = problem_of(exc, view.texts).text
    for one in completions(line, _account_names(parts, person)):
        shown = view.text(one.key) if one.key else ""
        answer["options"].append({"text": one.text, "start": one.start, "help": shown})
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _account_names(parts: ConsoleParts, person: Person) -> list[str]:
    """Returns the accounts of the configuration, if the person sees a lane."""
    return sorted(parts.settings.accounts) if person.patterns(Role.VIEWER) else []


def _only_hit(parts: ConsoleParts, person: Person, terms: DeliveryTerms) -> str:
    """Returns the address of the only delivery that the search finds; empty for none or several."""
    wanted = allowed(terms, person)
    found = found_page(parts, wanted, None, size=2).rows if wanted else []
    return f"/deliveries/{found[0].delivery_key}" if len(found) == 1 else ""


def _results(
    view: View,
    parts: ConsoleParts,
    person: Person,
    asked: tuple[str, str],
    terms: DeliveryTerms,
    after: str,
) -> Page:
    line, token = asked
    wanted = allowed(terms, person)
    place = keys_of(after, Cursor)
    found = found_page(parts, wanted, place) if wanted else SearchPage([], None, terms.since)
    address = f"/search?s={token}" if token else address_of(parts, person, line, terms)
    more = f"{address}&after={cursor(found.next)}" if found.next else ""
    words = words_of(wanted or terms, view.texts)
    personal = is_personal(line, terms)
    hidden = sealed(parts.settings.console.secret, person.id, line)
    resend = resend_link(wanted, person) if wanted else ResendLink()
    result = SearchResult(line, words, None, found, more, hidden, personal, resend)
    return _page(view, parts, person, result)


def found_page(
    parts: ConsoleParts, terms: DeliveryTerms, after: Cursor | None, size: int = 50
) -> SearchPage:
    """Returns one page of a search; by name, SQLite's archived days too. Raises QueryError, LedgerError."""
    found = search_of(parts).page(terms, after, size)
    if found.rows or after or parts.databases.reads.is_postgres:
        return found
    name = terms.name or terms.delivery_key or terms.message_id or terms.biz_id
    return SearchPage(_in_files(parts, name, terms), None, terms.since) if name else found


def _in_files(parts: ConsoleParts, name: str, terms: DeliveryTerms) -> list[SearchRow]:
    recovery, base = parts.settings.recovery, parts.settings.base
    past = PastDeliveries(parts.databases.reads, recovery.archive_dir, base)
    found = past.find(name, terms.since if terms.biz_id else 0)
    lanes = terms.lanes or tuple(lane.name for lane in LANES)
    rows = [one for one in found if one.row.lane in lanes]
    if terms.delivery_key:
        rows = [one for one in rows if one.row.delivery_key == name]
    return [past_row(one.row, one.where) for one in rows]


def past_row(row: FoundRow, where: str) -> SearchRow:
    """Returns an archived row as a search has it."""
    fields = {name: getattr(row, name, None) for name in SearchRow.__struct_fields__}
    return msgspec.convert(fields | {"origin": None, "where": where}, SearchRow)


def _by_button(
    view: View, parts: ConsoleParts, person: Person, line: str, terms: DeliveryTerms
) -> Page:
    problem = LineProblem(view.text("search.by_button"))
    result = SearchResult(line, words_of(terms, view.texts), problem, personal=True)
    return _page(view, parts, person, result)


def _refused(view: View, parts: ConsoleParts, person: Person, line: str, error: QueryError) -> Page:
    result = SearchResult(line, "", problem_of(error, view.texts), personal=True)
    return _page(view, parts, person, result, status=422)


def _page(
    view: View, parts: ConsoleParts, person: Person, result: SearchResult, status: int = 200
) -> Page:
    # A page with rows spares the statement: its reader looks for no other search.
    has_rows = result.found is not None and bool(result.found.rows)
    return view.page(
        "deliveries/search.html",
        status=status,
        result=result,
        rows_of=rows_of,
        views=None if has_rows else parts.ledger.views().of(person.name),
        examples=EXAMPLES,
        rules=RULES,
    )


HANDLERS = [search, find, complete]
