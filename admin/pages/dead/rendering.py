"""Any bytes as text that is safe to show: bounded, with escapes for bytes and marks that nobody sees.

Receivers are masked and values of contents hidden, unless the letter is revealed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from admin.web.foreign_text import visible
from sending.dead_letters.reader import DeadLetter
from tracing.masks import impersonal

SHOWN: Final = 64 << 10
"""Characters of a value that are shown."""
_SHOWN_HEADER: Final = 500
_SHOWN_HEADERS: Final = 100


class ShownValue(NamedTuple):
    """A value as text."""

    text: str
    size: int
    """Bytes of the value."""
    is_json: bool
    cut: int
    """Characters that are left out."""
    null: bool


class ShownHeader(NamedTuple):
    """One header as text."""

    name: str
    value: str


class ShownLetter(NamedTuple):
    """A letter as text."""

    key: str
    value: ShownValue
    headers: list[ShownHeader]
    more_headers: int


def shown_letter(letter: DeadLetter, *, revealed: bool) -> ShownLetter:
    """Returns the letter for a page."""
    some = letter.headers[:_SHOWN_HEADERS]
    headers = [
        ShownHeader(
            visible(name[:_SHOWN_HEADER]), _short(value, revealed or name.startswith("hongyan-"))
        )
        for name, value in some
    ]
    value = shown_value(letter, revealed=revealed)
    return ShownLetter(
        _short(letter.key, revealed), value, headers, len(letter.headers) - len(some)
    )


def shown_value(letter: DeadLetter, *, revealed: bool) -> ShownValue:
    """Returns the letter's value for a page: JSON with indents, else text."""
    value = letter.value or b""
    json = _json(letter, revealed)
    plain = _text(value) if json is None else json
    text = impersonal(plain) if json is None and not revealed else plain
    shown = visible(text[:SHOWN], SHOWN)
    return ShownValue(
        shown, len(value), json is not None, max(len(text) - SHOWN, 0), letter.value is None
    )


def _json(letter: DeadLetter, revealed: bool) -> str | None:
    try:
        if not revealed:
            masked = letter.masked_json()
            return None if masked is None else msgspec.json.format(masked, indent=2)
        written = letter.value or b""
        msgspec.json.decode(written)  # `format` checks less
        return msgspec.json.format(written, indent=2).decode("utf-8", "backslashreplace")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _short(value: bytes | None, revealed: bool) -> str:
    text = _text((value or b"")[: 4 * _SHOWN_HEADER])
    shown = text if revealed else impersonal(text)
    return visible(shown[:_SHOWN_HEADER]) + ("…" if len(shown) > _SHOWN_HEADER else "")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
