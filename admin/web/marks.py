"""Marks in foreign text that nobody sees, made visible: controls, and marks that turn or hide text."""

from __future__ import annotations

import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)


def visible(text: str) -> str:
    """Returns the text with a code point's number in place of each control and unseen mark."""
    return _UNSEEN.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text)
