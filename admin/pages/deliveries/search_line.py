"""A line of the query language as a person typed it: its words, its address, its rights."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from admin.access import Person, Role
from admin.parts import ConsoleParts
from admin.web.languages import Texts
from admin.web.sealing import sealed
from admin.web.view import query
from idempotency.search.fields import ENDED, LANE_NAMES
from idempotency.search.language import DeliveryTerms, QueryError
from idempotency.search.store import Search
from idempotency.search.wording import Phrase, error_phrase, explained
from message.receiver_hash import hasher

_LIKE_RECEIVER: Final = re.compile(r"@|\d{7,}")


class LineProblem(NamedTuple):
    """An error of a line, in the person's language."""

    text: str
    near: str = ""
    """A word to use in the place of the wrong one."""
    start: int = 0
    end: int = 0


def search_of(parts: ConsoleParts) -> Search:
    """Returns searches on the database of pages."""
    return Search(parts.databases.reads, hasher(parts.settings.outcomes.hash_key))


def allowed(terms: DeliveryTerms, person: Person) -> DeliveryTerms | None:
    """Returns the terms within the lanes that the person sees; None if there is no such lane."""
    wanted = terms.lanes or LANE_NAMES
    lanes = tuple(person.among(wanted))
    if lanes == tuple(wanted):
        return terms
    return msgspec.structs.replace(terms, lanes=lanes) if lanes else None


def is_personal(line: str, terms: DeliveryTerms | None) -> bool:
    """Returns whether the line may name a person: no address may hold it."""
    if terms is None or terms.receiver or terms.name or terms.biz_id:
        return True
    named = (terms.message_id, terms.delivery_key, terms.copy_of, terms.provider_id, terms.place)
    return not any(named) and _LIKE_RECEIVER.search(line) is not None


def address_of(parts: ConsoleParts, person: Person, line: str, terms: DeliveryTerms) -> str:
    """Returns the address of a search's results; a line that may name a person is sealed in it."""
    if is_personal(line, terms):
        return f"/search?s={sealed(parts.settings.console.secret, person.id, line)}"
    return f"/search?q={quote(line, safe='')}"


def problem_of(error: QueryError, texts: Texts) -> LineProblem:
    """Returns the sentence about a wrong line."""
    phrase = error_phrase(error)
    values = {name: value for name, value in phrase.values.items() if name != "near"}
    return LineProblem(texts(phrase.key, **values), error.values.get("near", ""), *_place(error))


def words_of(terms: DeliveryTerms, texts: Texts) -> str:
    """Returns what the search looks for, in one sentence."""
    return texts("search.join").join(_worded(one, texts) for one in explained(terms))


def _worded(phrase: Phrase, texts: Texts) -> str:
    return texts(phrase.key, **phrase.values)


def _place(error: QueryError) -> tuple[int, int]:
    return error.start, error.end


def resend_address(terms: DeliveryTerms, person: Person) -> str:
    """Returns the address of a new resend job with these terms; empty if no job can have them, or if the
    person operates none of the lanes."""
    lanes = person.among(terms.lanes or LANE_NAMES, Role.OPERATOR)
    listed = bool(terms.states) and set(terms.states) <= set(ENDED)
    if not listed or not lanes or terms.names or terms.place or len(terms.accounts) > 1:
        return ""
    return "/resend/new" + query(
        states=",".join(terms.states),
        lanes=",".join(lanes),
        since=terms.since,
        until=terms.until,
        account="".join(terms.accounts),
        template=terms.template,
        code=terms.error,
    )
