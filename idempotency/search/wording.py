"""Words for searches: explanations, errors, completions. `key` finds a translation of the English. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from idempotency.search.fields import LANE_NAMES, RULES, STATES, Field
from idempotency.search.language import DeliveryTerms, QueryError, tokens

AGES: Final = ("15m", "1h", "2h", "24h", "7d", "31d")
MOST: Final = 12
"""Completions that are offered at once."""

ENGLISH: Final = {
    "search.too_long": "the line is too long: {most} characters at most",
    "search.open_quote": "this quote is not closed",
    "search.two_names": "{word}: one bare name is enough; write FIELD:{word} for another term",
    "search.twice": "{field} is given twice; divide several values by commas where a field takes them",
    "search.no_value": "{field}: needs a value",
    "search.unknown_field": "there is no field {field}",
    "search.many_values": "give from 1 to {most} values",
    "search.unknown_state": "there is no state {word}",
    "search.unknown_lane": "no lane is named {word}",
    "search.bad_place": "{word}: write TOPIC/PARTITION/OFFSET",
    "search.bad_time": "{word}: write an age (2h, 7d) or a date (2026-11-22T08:00)",
    "search.no_time": "it ends before it begins",
    "search.too_wide": "too wide: this covers {days} days at most; add {add} or a later since:",
    "search.far_too_wide": "too wide: this covers {days} days at most; give a later since:",
    "search.timeout": "too wide: it took longer than {seconds} s; add a lane, a state or a later since:",
    "search.no_hash_key": "receivers are found by a hash under outcomes.hash_key, which is not set",
    "search.name": "named {name}",
    "search.message_id": "of the message {message_id}",
    "search.delivery_key": "with the delivery key {delivery_key}",
    "search.biz_id": "with the business id {biz_id}",
    "search.receiver": "to {receiver}",
    "search.provider_id": "that the provider calls {provider_id}",
    "search.place": "read from {place}",
    "search.copy_of": "that are copies of {copy_of}",
    "search.template": "of the template {template}",
    "search.lanes": "in {lanes}",
    "search.accounts": "through {accounts}",
    "search.states": "now {states}",
    "search.error": "that ended by {error}",
    "search.claimed": "claimed",
    "search.ended": "that ended",
    "search.deliveries": "Deliveries",
    "search.between": "from {since} to {until} UTC",
}


class Phrase(NamedTuple):
    """A part of a sentence: the key of its translation, and the values in it."""

    key: str
    values: dict[str, str]

    @property
    def english(self) -> str:
        """The phrase in English."""
        return ENGLISH[self.key].format(**self.values)


class Completion(NamedTuple):
    """A text that may stand in the line's last term."""

    text: str
    """In the place of the term from `start` on."""
    start: int
    help: str
    """English; `search.field.FIELD` is the key of its translation."""
    key: str = ""


def error_phrase(error: QueryError) -> Phrase:
    """Returns the sentence about a wrong line; `near`, if it has one, is a word to offer."""
    return Phrase(error.code, error.values)


def explained(terms: DeliveryTerms) -> list[Phrase]:
    """Returns what the search looks for, phrase by phrase."""
    found = [Phrase("search.deliveries", {})]
    found += _phrases(terms, ("name", "message_id", "delivery_key", "biz_id", "receiver"))
    found += _phrases(terms, ("provider_id",))
    if terms.place is not None:
        found.append(Phrase("search.place", {"place": str(terms.place)}))
    found += _phrases(terms, ("copy_of", "template", "error", "lanes", "accounts", "states"))
    found.append(Phrase("search.ended" if terms.by_end else "search.claimed", {}))
    between = {"since": _time(terms.since), "until": _time(terms.until)}
    return [*found, Phrase("search.between", between)]


def sentence(phrases: Sequence[Phrase]) -> str:
    """Returns the phrases in English: `Deliveries in sms.notice claimed from … to … UTC`."""
    return " ".join(phrase.english for phrase in phrases)


def completions(
    line: str, accounts: Sequence[str] = (), templates: Sequence[str] = ()
) -> list[Completion]:
    """Returns texts for the term at the end of the line. `accounts` and `templates` are known names."""
    try:
        last = tokens(line)[-1] if line and not line[-1].isspace() else None
    except QueryError:
        return []
    if last is None or not last.field:
        word, start = (last.value, last.start) if last else ("", len(line))
        return _fields(word, start, _used(line[:start]))
    known: Sequence[str] | None = {
        Field.STATE.value: STATES,
        Field.LANE.value: LANE_NAMES,
        Field.ACCOUNT.value: accounts,
        Field.TEMPLATE.value: templates,
        Field.SINCE.value: AGES,
        Field.UNTIL.value: AGES,
    }.get(last.field)
    if known is None:
        return []
    head, comma, part = last.value.rpartition(",")
    start = last.value_start + len(head) + len(comma)
    fitting = [one for one in known if one.lower().startswith(part.lower()) and one != part]
    return [Completion(one, start, "") for one in fitting[:MOST]]


def _fields(word: str, start: int, used: set[str]) -> list[Completion]:
    fitting = [f for f in Field if f.value.startswith(word.lower()) and f.value not in used]
    return [
        Completion(f"{f.value}:", start, RULES[f].help, f"search.field.{f.value}")
        for f in fitting[:MOST]
    ]


def _used(line: str) -> set[str]:
    return {token.field for token in tokens(line)}


def _phrases(terms: DeliveryTerms, names: Sequence[str]) -> list[Phrase]:
    """Returns a phrase for each of these terms that is there."""
    given = ((name, getattr(terms, name)) for name in names)
    return [
        Phrase(f"search.{name}", {name: value if isinstance(value, str) else _listed(value)})
        for name, value in given
        if value
    ]


def _listed(several: Sequence[str]) -> str:
    shown = ", ".join(several[:6])
    return shown if len(several) <= 6 else f"{shown} … ({len(several)})"


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1_000, UTC):%Y-%m-%d %H:%M:%S}"
