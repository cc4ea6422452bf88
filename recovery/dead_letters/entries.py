"""Letters → rows of the index. Pure. A row holds nothing of the record's body but its id."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from idempotency.dead_letters.rows import (
    LONGEST_DETAIL,
    LONGEST_ORIGIN,
    LONGEST_WORD,
    KeptForm,
    LetterEntry,
    clean,
)
from sending.dead_letters.reader import DeadLetter
from tracing.masks import impersonal

_DIGITS: Final = 32
_MOST_BYTES: Final = 1 << 40


def entry_of(letter: DeadLetter) -> LetterEntry:
    """Returns the row of a letter. One that names no place of origin is entered under its own."""
    _topic, partition, offset = letter.place.rsplit("/", 2)
    value = letter.value or b""
    return LetterEntry(
        origin=clean(letter.origin, LONGEST_ORIGIN) if _is_place(letter.origin) else letter.place,
        partition=int(partition),
        place=int(offset),
        at=letter.at,
        reason=clean(letter.reason, LONGEST_WORD),
        detail=clean(impersonal(letter.detail[:LONGEST_DETAIL]), LONGEST_DETAIL),
        lane=letter.lane,
        message_id=clean(letter.message_id, LONGEST_WORD),
        size=_size(letter),
        form=_form(letter),
        digest=(letter.stub.sha256 if letter.stub else sha256(value).hexdigest())[:_DIGITS],
    )


def _size(letter: DeadLetter) -> int:
    """Returns the bytes of the record's value; bounded, since a foreign letter may name any number."""
    size = letter.stub.value_bytes if letter.stub else letter.truncated or len(letter.value or b"")
    return min(max(size, 0), _MOST_BYTES)


def _is_place(origin: str) -> bool:
    topic, *numbers = origin.rsplit("/", 2)
    good = all(one.isascii() and one.isdigit() for one in numbers)
    return bool(topic) and len(numbers) == 2 and good and len(origin) <= LONGEST_ORIGIN


def _form(letter: DeadLetter) -> KeptForm:
    if not _is_place(letter.origin):
        return KeptForm.FOREIGN
    if letter.stub is not None:
        return KeptForm.STUB
    return KeptForm.CUT if letter.truncated else KeptForm.WHOLE
