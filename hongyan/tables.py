"""Tables and times as commands print them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


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
