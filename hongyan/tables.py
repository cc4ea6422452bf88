"""Tables and times as commands print them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

_GAP: Final = 2
"""Blanks between columns."""
_NARROW: Final = 16
"""Width down to which a column wraps."""


class RowListing:
    """Rows under titles. Where they are too wide for the console, each row is a block of lines instead: a
    table would cut the values that people copy."""

    def __init__(
        self, titles: Sequence[str], right: Collection[str], whole: Collection[str]
    ) -> None:
        self._titles = titles
        self._right = right
        self._whole = whole
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Adds a row. A plain text is shown as it is; a Text may have styles."""
        from rich.text import Text

        self._rows.append([Text(one) if isinstance(one, str) else one for one in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._least_width() <= options.max_width:
            yield self._table()
            return
        from rich.padding import Padding

        for row in self._rows:
            first, *rest = self._pairs(row)
            yield first[1]
            for line in self._lines(rest, options.max_width - _GAP):
                yield Padding(line, (0, 0, 0, _GAP))

    def _least_width(self) -> int:
        widths = [
            max(len(title), *(row[at].cell_len for row in self._rows), 0)
            for at, title in enumerate(self._titles)
        ]
        fixed = {*self._whole, *self._right}
        needed = [
            width if title in fixed else max(len(title), min(width, _NARROW))
            for title, width in zip(self._titles, widths, strict=True)
        ]
        return sum(needed) + _GAP * (len(needed) - 1)

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for at, title in enumerate(self._titles):
            width = max((row[at].cell_len for row in self._rows), default=0)
            table.add_column(
                title,
                justify="right" if title in self._right else "left",
                no_wrap=title in self._whole,
                overflow="fold",
                min_width=max(len(title), min(width, _NARROW)),
            )
        for row in self._rows:
            table.add_row(*row)
        return table

    def _pairs(self, row: Sequence[Text]) -> list[tuple[str, Text]]:
        return list(zip(self._titles, row, strict=True))

    def _lines(self, pairs: Sequence[tuple[str, Text]], width: int) -> list[Text]:
        """Returns the other cells behind their titles, as many a line as fit. Leaves out empty cells."""
        from rich.text import Text

        lines: list[Text] = []
        for title, cell in pairs:
            if not cell.plain:
                continue
            part = Text.assemble((f"{title.lower()} " if title else "", "dim"), cell)
            part.overflow = "fold"
            if lines and lines[-1].cell_len + _GAP + part.cell_len <= width:
                lines[-1].append(" " * _GAP).append(part)
            else:
                lines.append(part)
        return lines


_MS: Final = 1_000
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def listing(
    titles: Sequence[str], *, right: Collection[str] = (), whole: Collection[str] = ()
) -> RowListing:
    """Returns an empty listing without a frame. Columns of `right` end flush; those of `whole` never wrap
    in a table."""
    return RowListing(titles, right, whole)


def local_time(at_ms: int) -> str:
    """Returns epoch milliseconds as date and time of this machine, to the second."""
    return datetime.fromtimestamp(at_ms / 1_000).astimezone().isoformat(" ", "seconds")[:19]


def age(ms: int) -> str:
    """Returns the age in the largest unit of which it has two; else in seconds."""
    for size, unit in _UNITS:
        if ms >= 2 * size:
            return f"{ms // size:,} {unit}"
    return f"{max(0, ms) // _MS} s"
