"""The failures of a resend job as CSV, a line at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from idempotency.resend_jobs.contract import JobItem

HEADER: Final = (
    *("delivery_key", "lane", "account", "state_before", "fate", "why"),
    *("handed_over_at", "ended_at", "new_id"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters that a spreadsheet would run as a formula."""
_MS: Final = 1_000


def csv_lines(items: Iterable[JobItem]) -> Iterator[str]:
    """Yields the header, then a line for each item; never holds more than one."""
    yield _line(HEADER)
    for one in items:
        times = (_time(one.applied_at), _time(one.ended_at))
        place = (one.delivery_key, one.lane, one.account, one.state)
        yield _line((*place, one.fate.value, one.why, *times, one.new_id or ""))


def _line(cells: Iterable[str]) -> str:
    target = io.StringIO()
    csv.writer(target).writerow([f"'{c}" if c.startswith(_FORMULA) else c for c in cells])
    return target.getvalue()


def _time(at: int | None) -> str:
    return (
        "" if at is None else datetime.fromtimestamp(at / _MS, UTC).isoformat("T", "milliseconds")
    )
