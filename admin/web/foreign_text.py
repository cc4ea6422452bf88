"""Texts of strangers in a page: marks that nobody sees are written out, and long texts are cut."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

MOST: Final = 2_000
"""Characters of one text in a page."""
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Without the joiners U+200C and U+200D, which Persian words and joined emoji need."""
_NAMELESS: Final = re.compile(r"[\x00\ud800-\udfff]")
"""No page and no form can carry these."""
_C1: Final = range(0x80, 0xA0)
"""A reference to one of these means another character in HTML."""
_PRINTABLE: Final = "\u115f\u1160\u17b4\u17b5"
"""Python counts these of them as printable."""


def visible(text: object, most: int = MOST) -> str:
    """Returns the text, at most so many characters of it, with `⟨U+202E⟩` in place of each unseen mark."""
    whole = "" if text is None else str(text)
    some = _UNSEEN.sub(_number, whole[:most])
    more = len(whole) - most
    return f"{some}… (+{more:,})" if more > 0 else some


def with_marks_shown(value: object) -> object:
    """Returns a text with its unseen marks as `visible` shows them. A value of another type stays as it is,
    and so does markup: its own parts came here. For every expression of every template, so that no page
    can forget it."""
    if not isinstance(value, str) or isinstance(value, Markup) or _is_seen(value):
        return value
    return _UNSEEN.sub(_number, value)


def exact(value: object) -> Markup:
    """Returns the value of a form's field. The form sends back each character that a page can carry; unseen
    marks are written as references."""
    return Markup(_UNSEEN.sub(_reference, escape(value)))  # noqa: S704 - escaped


def _number(found: re.Match[str]) -> str:
    return f"⟨U+{ord(found[0]):04X}⟩"


def _reference(found: re.Match[str]) -> str:
    if _NAMELESS.match(found[0]):
        return _number(found)
    return found[0] if ord(found[0]) in _C1 else f"&#x{ord(found[0]):X};"


def _is_seen(text: str) -> bool:
    """Returns whether no such mark is in it. Every text of a page comes here, and this takes a quarter of
    the pattern's time."""
    if text.isascii():
        return text.isprintable() or str.replace(text, "\n", "").isprintable()
    line = str.replace(text, "\n", "")
    return line.isprintable() and not any(one in line for one in _PRINTABLE)
