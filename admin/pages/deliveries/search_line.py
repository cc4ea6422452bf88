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


class ResendLink(NamedTuple):
    """The way from a search to a resend job of the same deliveries."""

    address: str = ""
    """Of a new job with the search's terms; empty: none is offered."""
    missing: str = ""
    """Key of the sentence on why none is offered; empty: the person finds nothing to resend here."""


def resend_link(terms: DeliveryTerms, person: Person) -> ResendLink:
    """Returns the link of a search. A job goes by the time of the end, and has one account at most."""
    lanes = person.among(terms.lanes or LANE_NAMES, Role.OPERATOR)
    if not lanes or not terms.states or not set(terms.states) <= set(ENDED):
        return ResendLink()
    if not terms.by_end:
        return ResendLink(missing="search.no_resend_by_claim")
    if len(terms.accounts) > 1:
        return ResendLink(missing="search.no_resend_of_accounts")
    fields = query(
        states=",".join(terms.states),
        lanes=",".join(lanes),
        since=terms.since,
        until=terms.until - 1,  # a job includes its end
        account="".join(terms.accounts),
        code=terms.error,
    )
    return ResendLink(f"/resend/new{fields}")
