"""The query language: one line of `field:value` and bare names becomes terms. Pure.

    lane:sms.* state:PARKED,REJECTED since:2h
    receiver:+8613800000001 since:7d
    5f70bf18a086007016e948b04aed3b82

All terms must hold. A value with spaces is written in double quotes. A bare word is a name: it is looked up
as delivery key, message id, business id, place, receiver and provider's id. Times are ages (90s, 30m, 2h)
or dates (2026-11-22, 2026-11-22T08:00, with Z or +08:00; UTC without). Every search has begin and end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, NamedTuple

import msgspec

from backends.durations import milliseconds
from idempotency.search.fields import ENDED, LANE_NAMES, RULES, STATES, Field
from message.delivery import Origin
from message.vocabulary import LanePatternError, lanes_matching

DAY_MS: Final = 86_400_000
NAMED_MS: Final = 31 * DAY_MS
"""Time that a search by name covers unless it says another."""
NAMED_AT_MOST: Final = 400 * DAY_MS
LISTED_MS: Final = DAY_MS
"""Time that any other search covers unless it says another."""
ENDED_AT_MOST: Final = 93 * DAY_MS
LISTED_AT_MOST: Final = 7 * DAY_MS
TEMPLATE_AT_MOST: Final = 31 * DAY_MS
MAX_LINE: Final = 1_000
"""Characters of a line."""
MAX_VALUES: Final = 50
_TOKEN: Final = re.compile(r'([a-z_]+):(?=\s|$)|(?:([a-z_]+):)?("(?:[^"\\]|\\.)*"?|\S+)')
_PLACE: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/(\d{1,9})/(\d{1,18})")
_ESCAPED: Final = re.compile(r"\\(.)")


class QueryError(ValueError):
    """A line that cannot be searched for. `code` is the key of its translation, `values` are its parts."""

    def __init__(self, code: str, start: int, end: int, **values: str) -> None:
        super().__init__(code)
        self.code = code
        self.start, self.end = start, end
        """The place in the line, in characters."""
        self.values = values


class QueryToken(NamedTuple):
    """One term as it is written."""

    field: str
    """Empty for a bare word."""
    value: str
    start: int
    end: int
    value_start: int


class DeliveryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that must all hold; an empty one excludes nothing. Times are epoch milliseconds."""

    name: str = ""
    message_id: str = ""
    delivery_key: str = ""
    biz_id: str = ""
    receiver: str = ""
    """As it was typed, not yet normalised."""
    provider_id: str = ""
    place: Origin | None = None
    copy_of: str = ""
    template: str = ""
    lanes: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    error: str = ""
    since: int = 0
    until: int = 0
    """The end, which is not part of it."""
    default_since: bool = False
    """Whether the line names no begin."""

    @property
    def names(self) -> bool:
        """Whether it names few deliveries."""
        texts = (self.name, self.message_id, self.delivery_key, self.biz_id, self.receiver)
        return any(texts) or bool(self.provider_id or self.copy_of)

    @property
    def by_end(self) -> bool:
        """Whether time means the time at which deliveries ended, not their claim."""
        return not (self.names or self.place or self.template) and bool(
            self.states and set(self.states) <= set(ENDED)
        )


def tokens(line: str) -> list[QueryToken]:
    """Returns the terms as they are written. Raises QueryError for a line that is too long."""
    if len(line) > MAX_LINE:
        raise QueryError("search.too_long", MAX_LINE, len(line), most=str(MAX_LINE))
    return list(_tokens(line))


def _tokens(line: str) -> Iterator[QueryToken]:
    for found in _TOKEN.finditer(line):
        if found[1]:
            yield QueryToken(found[1], "", found.start(), found.end(), found.end())
            continue
        raw, at = found[3], found.start(3)
        if raw.startswith('"'):
            if len(raw) < 2 or not raw.endswith('"') or raw.endswith('\\"'):
                raise QueryError("search.open_quote", at, found.end())
            raw = _ESCAPED.sub(r"\1", raw[1:-1])
        field = found[2] or ""
        yield QueryToken(field, raw, found.start(), found.end(), at)


def parse(line: str, now_ms: int) -> DeliveryTerms:
    """Returns the terms of a line. Raises QueryError."""
    found: dict[str, object] = {}
    places: dict[Field, QueryToken] = {}
    for token in tokens(line):
        field = _field(token)
        if field is None:
            if "name" in found:
                raise QueryError("search.two_names", token.start, token.end, word=token.value)
            found["name"] = _bare(token)
            continue
        if field in places:
            raise QueryError("search.twice", token.start, token.end, field=field.value)
        if not token.value:
            raise QueryError("search.no_value", token.start, token.end, field=field.value)
        places[field] = token
        found[_TARGETS[field]] = _value(field, token, now_ms)
    if found.get("error") and not found.get("states"):
        found["states"] = ENDED
    terms = msgspec.convert(found, DeliveryTerms)
    return _bounded(terms, places, now_ms, len(line))


_TARGETS: Final = {
    Field.ID: "message_id",
    Field.KEY: "delivery_key",
    Field.BIZ: "biz_id",
    Field.RECEIVER: "receiver",
    Field.PROVIDER: "provider_id",
    Field.PLACE: "place",
    Field.COPY_OF: "copy_of",
    Field.TEMPLATE: "template",
    Field.LANE: "lanes",
    Field.ACCOUNT: "accounts",
    Field.STATE: "states",
    Field.ERROR: "error",
    Field.SINCE: "since",
    Field.UNTIL: "until",
}


def _field(token: QueryToken) -> Field | None:
    if not token.field:
        return None
    try:
        return Field(token.field)
    except ValueError:
        if token.field == "group":  # `group:ops` is a receiver, and so a name
            return None
        near = _near(token.field, [field.value for field in Field])
        raise QueryError(
            "search.unknown_field", token.start, token.value_start, field=token.field, near=near
        ) from None


def _bare(token: QueryToken) -> str:
    return f"{token.field}:{token.value}" if token.field else token.value


def _value(field: Field, token: QueryToken, now_ms: int) -> object:
    if field in (Field.SINCE, Field.UNTIL):
        return _time(token, now_ms)
    if field is Field.PLACE:
        return _place(token)
    if not RULES[field].several:
        return token.value
    parts = tuple(part for part in token.value.split(",") if part)
    if not parts or len(parts) > MAX_VALUES:
        raise QueryError("search.many_values", token.start, token.end, most=str(MAX_VALUES))
    if field is Field.STATE:
        return _states(token, parts)
    if field is Field.LANE:
        return _lanes(token, parts)
    return parts


def _states(token: QueryToken, parts: tuple[str, ...]) -> tuple[str, ...]:
    for part in parts:
        if part.upper() not in STATES:
            near = _near(part.upper(), STATES)
            start, end = _within(token, part)
            raise QueryError("search.unknown_state", start, end, word=part, near=near)
    return tuple(dict.fromkeys(part.upper() for part in parts))


def _lanes(token: QueryToken, parts: tuple[str, ...]) -> tuple[str, ...]:
    lanes: list[str] = []
    for part in parts:
        try:
            lanes += [lane.name for lane in lanes_matching([part])]
        except LanePatternError:
            start, end = _within(token, part)
            near = _near(part, LANE_NAMES)
            raise QueryError("search.unknown_lane", start, end, word=part, near=near) from None
    return tuple(dict.fromkeys(lanes))


def _within(token: QueryToken, part: str) -> tuple[int, int]:
    start = token.value_start + max(0, token.value.find(part))
    return start, start + len(part)


def _place(token: QueryToken) -> Origin:
    found = _PLACE.fullmatch(token.value)
    if found is None:
        raise QueryError("search.bad_place", token.value_start, token.end, word=token.value)
    return Origin(found[1], int(found[2]), int(found[3]))


def _time(token: QueryToken, now_ms: int) -> int:
    try:
        return now_ms - milliseconds(token.value)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(token.value)
    except ValueError:
        raise QueryError(
            "search.bad_time", token.value_start, token.end, word=token.value
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1_000)


def _bounded(
    terms: DeliveryTerms, places: dict[Field, QueryToken], now_ms: int, length: int
) -> DeliveryTerms:
    """Returns the terms with both times. Raises QueryError for a search that is too wide, or of no time."""
    until = terms.until or now_ms + 1
    usual = NAMED_MS if terms.names else LISTED_MS
    since = terms.since if Field.SINCE in places else until - usual
    if since >= until:
        token = places.get(Field.SINCE) or places[Field.UNTIL]
        raise QueryError("search.no_time", token.start, token.end)
    most = longest(terms)
    if until - since > most + 1:  # the millisecond of now is part of it
        token = places.get(Field.SINCE, QueryToken("", "", 0, length, 0))
        days, add = str(most // DAY_MS), _narrower(terms, until - since)
        if not add:
            raise QueryError("search.far_too_wide", token.start, token.end, days=days)
        raise QueryError("search.too_wide", token.start, token.end, days=days, add=add)
    changed = {"since": max(since, 0), "until": until, "default_since": Field.SINCE not in places}
    return msgspec.structs.replace(terms, **changed)


def longest(terms: DeliveryTerms) -> int:
    """Returns the longest time that the search may cover, in milliseconds."""
    if terms.names:
        return NAMED_AT_MOST
    if terms.by_end:
        return ENDED_AT_MOST
    return TEMPLATE_AT_MOST if terms.template else LISTED_AT_MOST


def _narrower(terms: DeliveryTerms, wanted_ms: int) -> str:
    """Returns a term that lets the search cover this time; empty if none does."""
    ended = msgspec.structs.replace(terms, states=ENDED)
    named = msgspec.structs.replace(terms, receiver="+")
    if not terms.states and longest(ended) + 1 >= wanted_ms:
        return f"state:{ENDED[0]}"
    return "receiver:" if longest(named) + 1 >= wanted_ms else ""


def place_of(text: str) -> Origin | None:
    """Returns the record's place that the text names; None if it names none."""
    found = _PLACE.fullmatch(text)
    return Origin(found[1], int(found[2]), int(found[3])) if found else None


def _near(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Returns the known word that is most like it; empty without one."""
    found = get_close_matches(word, known, 1)
    return found[0] if found else ""
