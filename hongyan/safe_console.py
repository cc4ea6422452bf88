"""A console on which texts of others give the terminal no orders.

The body or a header of a dead letter may hold escape sequences: printed as they are, they would rename the
window, hide lines, or write over others. rich removes some control characters, and not ESC.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_PICTURES: Final = 0x2400
"""Unicode has a picture of each ASCII control character from here on; that of DEL follows a blank's."""
_KEPT: Final = frozenset({ord("\t"), ord("\n")})
_C1: Final = range(0x80, 0xA0)
_DIRECTIONS: Final = (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the order of the characters behind them."""
_SHOWN: Final = {
    **{code: _PICTURES + code for code in range(0x20) if code not in _KEPT},
    0x7F: _PICTURES + 0x21,
    **dict.fromkeys((*_C1, *_DIRECTIONS), 0xFFFD),
}


def with_control_pictures(text: str) -> str:
    """Returns the text with a picture, or U+FFFD, in place of each character that a terminal obeys. It is
    as wide as before."""
    return text if text.isprintable() else text.translate(_SHOWN)


class SafeConsole(Console):
    """Styles and cursor movements of ours go through; they are no text."""

    def render_str(self, text: str, **named: Any) -> Text:
        """Returns the text for a line or a cell, measured as it will be shown."""
        return super().render_str(with_control_pictures(text), **named)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yields the segments with such texts."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else with_control_pictures(text), style, control)
