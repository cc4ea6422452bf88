"""Marks that change how other text looks: direction, invisible and control characters, made visible.

A message may hold a mark that turns the text after it around, or hides a part. A page
shows its number.
"""

from __future__ import annotations

from typing import Final

_SEEN: Final = frozenset("\t\n\r")
_MARKS: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200B,
    *range(0x200E, 0x2010),  # not the joiners before them, which letters and emoji need
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
)
_TABLE: Final = {one: f"⟨U+{one:04X}⟩" for one in _MARKS if chr(one) not in _SEEN}


def visible(value: object) -> object:
    """Returns a text with its marks as `⟨U+202E⟩`, a value of another type as it is. For every expression
    of a template."""
    if isinstance(value, str) and not value.isprintable():
        return value.translate(_TABLE)  # of a Markup, too: no mark is escaped
    return value
