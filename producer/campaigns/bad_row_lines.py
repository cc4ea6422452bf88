"""Bad rows of a run as CSV, a line at a time. They hold no value of the file's rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from producer.campaigns.contract import BadRow

HEADER: Final = ("line", "code", "detail")


def bad_row_lines(rows: Iterable[BadRow]) -> Iterator[str]:
    """Yields the header, then a line for each row; never holds more than one."""
    yield _line(HEADER)
    for one in rows:
        yield _line((str(one.line), one.code, one.detail))


def _line(cells: Iterable[str]) -> str:
    target = io.StringIO()
    csv.writer(target, lineterminator="\r\n").writerow(cells)
    return target.getvalue()
