"""Forms of a dead letter, from the whole record down to its name: the topic may refuse the larger ones."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from sending.dead_letters.headers import DETAIL, ORIGIN, REASON, TRUNCATED, Headers
from sending.dead_letters.stub import FIRST_BYTES, LONGEST_DETAIL, STUB, facts_of

KEEP_OF_OVERSIZED: Final = 512 * 1024
TOO_LARGE: Final = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
"""Names of a broker's, or a client's, refusal of the size."""
_ID: Final = "hongyan-id"


class LetterForm(Enum):
    """How much of a record goes to the dead letters, from most to least."""

    WHOLE = 0
    CUT = 1
    """The beginning of its value."""
    STUB = 2
    """Its name, sizes and digest (sending/dead_letters/stub.py)."""


class LetterParts(NamedTuple):
    """The parts of one dead letter: the record's own, and our reason."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """The record's own."""
    reason: str
    detail: str
    origin: str
    """topic/partition/offset."""


class ProducedLetter(NamedTuple):
    """A dead letter as Kafka gets it."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def next_form(form: LetterForm, size: int) -> LetterForm:
    """Returns the next smaller form for a value of `size` bytes, after the topic refused this one. After
    the smallest it is the whole record again: a person has to raise the topic's limit by then."""
    if form is LetterForm.STUB:
        return LetterForm.WHOLE
    if form is LetterForm.WHOLE and size > KEEP_OF_OVERSIZED:
        return LetterForm.CUT
    return LetterForm.STUB


def letter_in(form: LetterForm, one: LetterParts) -> ProducedLetter:
    """Returns the dead letter in this form."""
    value = one.value or b""
    if form is LetterForm.STUB:
        return ProducedLetter(None, value[:FIRST_BYTES], _stub_headers(one))
    headers = [*one.headers, *_marks(one, one.detail)]
    if form is LetterForm.CUT:
        cut = (TRUNCATED, str(len(value)).encode())
        return ProducedLetter(one.key, value[:KEEP_OF_OVERSIZED], [*headers, cut])
    return ProducedLetter(one.key, one.value, headers)


def message_id_in(headers: Headers) -> str:
    """Returns the producer's `hongyan-id` header: the value itself could not be read."""
    for name, value in headers:
        if name == _ID and value:
            return value.decode("ascii", "replace")[:64]
    return ""


def _marks(one: LetterParts, detail: str) -> Headers:
    ours = ((REASON, one.reason), (DETAIL, detail), (ORIGIN, one.origin))
    return [(name, text.encode("utf-8", "replace")) for name, text in ours]


def _stub_headers(one: LetterParts) -> Headers:
    facts = msgspec.json.encode(facts_of(one.key, one.value, one.headers))
    named = [(_ID, text.encode())] if (text := message_id_in(one.headers)) else []
    return [*named, *_marks(one, one.detail[:LONGEST_DETAIL]), (STUB, facts)]
