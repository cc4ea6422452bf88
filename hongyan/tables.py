"""Tables and times as commands print them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.table import Table

_MS: Final = 1_000
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def listing(
    titles: Sequence[str], *, right: Collection[str] = (), whole: Collection[str] = ()
) -> Table:
    """Returns an empty table without a frame. Columns of `right` end flush; those of `whole` never wrap."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(
            title, justify="right" if title in right else "left", no_wrap=title in whole
        )
    return table


def local_time(at_ms: int) -> str:
    """Returns epoch milliseconds as date and time of this machine, to the second."""
    return datetime.fromtimestamp(at_ms / 1_000).astimezone().isoformat(" ", "seconds")[:19]


def age(ms: int) -> str:
    """Returns the age in the largest unit of which it has two; else in seconds."""
    for size, unit in _UNITS:
        if ms >= 2 * size:
            return f"{ms // size:,} {unit}"
    return f"{max(0, ms) // _MS} s"
