"""Texts of strangers in a page: marks that nobody sees are written out, and long texts are cut."""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 2_000
"""Characters of one text in a page."""
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_PRINTABLE: Final = "\u115f\u1160\u17b4\u17b5"
"""Python counts these of them as printable."""


def visible(text: object, most: int = MOST) -> str:
    """Returns the text, at most so many characters of it, with `⟨U+202E⟩` in place of each unseen mark."""
    whole = "" if text is None else str(text)
    some = _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", whole[:most])
    more = len(whole) - most
    return f"{some}… (+{more:,})" if more > 0 else some


def with_marks_shown(value: object) -> object:
    """Returns a text with its unseen marks as `visible` shows them, a value of another type as it is. For
    every expression of every template, so that no page can forget it."""
    if not isinstance(value, str) or _is_seen(value):
        return value
    marks = {ord(one): f"⟨U+{ord(one):04X}⟩" for one in _UNSEEN.findall(value)}
    return value.translate(marks) if marks else value


def _is_seen(text: str) -> bool:
    """Returns whether no such mark is in it. The text of a page comes here once for each macro around it,
    and this takes a quarter of the pattern's time."""
    if text.isascii():
        return text.isprintable() or str.replace(text, "\n", "").isprintable()
    line = str.replace(text, "\n", "")
    return line.isprintable() and not any(one in line for one in _PRINTABLE)
