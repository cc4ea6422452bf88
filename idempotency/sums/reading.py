"""Reads the sums of a range of time, in one statement of few rows.

The past of a range comes from its own span; what that span has not yet, from shorter ones; the last minutes
from the processes' own rows. So a range of 60 days reads 60 days, 23 hours and so on.

Short spans are kept for a shorter time than long ones. A range that is older than its span's sums has
longer slots, and begins and ends with whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from idempotency.sums.counter import MINUTE_MS, SumRow
from idempotency.sums.rollup import DAY_MS, HOUR_MS, KEPT_MS, SPANS, merged
from idempotency.sums.store import COLUMNS
from idempotency.transactions import LedgerPart

MOST_ROWS: Final = 60_000
"""Rows of one range; further ones are left out, and the result says so."""
LONGEST_MS: Final = 400 * DAY_MS
_SETTLED_MS: Final = 2 * MINUTE_MS
"""A minute is read from the roll-up if the last one began so long after the minute's end."""
_LIST: Final = ", ".join(COLUMNS)
_MARK: Final = text("SELECT rolled_at FROM sum_marks")


class Piece(NamedTuple):
    """A part of a range that one span answers for; a span of 0: the processes' own minutes."""

    span: int
    start: int
    end: int


class SumsRead(NamedTuple):
    """The sums of a range. Times are epoch milliseconds by the database's clock."""

    start: int
    end: int
    span: int
    """Length of a slot; the row of a slot has its start."""
    rows: list[SumRow]
    cut: bool
    """There were more than MOST_ROWS rows."""


def span_of(length_ms: int) -> int:
    """Returns the length of the slots for a range: at most some 170 of them."""
    if length_ms <= 90 * MINUTE_MS:
        return MINUTE_MS
    if length_ms <= 26 * HOUR_MS:
        return 10 * MINUTE_MS
    return HOUR_MS if length_ms <= 8 * DAY_MS else DAY_MS


def kept_span(age_ms: int) -> int:
    """Returns the shortest span whose sums of this age are kept."""
    return next((span for span in SPANS if age_ms + span < KEPT_MS[span]), SPANS[-1])


def pieces(start: int, end: int, span: int, rolled_at: int) -> Iterator[Piece]:
    """Yields the parts of a range, oldest first; `start` is a multiple of `span`."""
    place, settled = start, rolled_at - _SETTLED_MS
    for shorter in (one for one in reversed(SPANS) if one <= span):
        edge = min(settled, end) // shorter * shorter
        if edge > place:
            yield Piece(shorter, place, edge)
            place = edge
    if place < end:
        yield Piece(0, place, end)


class SumReader(LedgerPart):
    """Nothing here writes. Every method is one transaction and raises LedgerError alone."""

    def last(self, length_ms: int) -> SumsRead:
        """Returns the sums of the last `length_ms`."""
        with self._begin() as (connection, now):
            end = now + 1  # the minute that begins now, too
            return _read(connection, now, end - length_ms, end)

    def between(self, start: int, end: int) -> SumsRead:
        """Returns the sums of this time, at most up to now and LONGEST_MS long. `end` is not part of it."""
        with self._begin() as (connection, now):
            return _read(connection, now, start, min(end, now + 1))


def _read(connection: Connection, now: int, start: int, end: int) -> SumsRead:
    start = min(max(start, end - LONGEST_MS), end - MINUTE_MS)
    span = max(span_of(end - start), kept_span(now - start))
    start = start // span * span
    shortest = kept_span(now - end)
    end = min(-(-end // shortest) * shortest, now + 1)
    rolled_at = int(connection.execute(_MARK).scalar_one())
    wanted = list(pieces(start, end, span, rolled_at))
    statement, asked = _statement(wanted)
    found = connection.execute(text(statement), {**asked, "limit": MOST_ROWS + 1}).all()
    rows = merged((SumRow(*row) for row in found[:MOST_ROWS]), span)
    return SumsRead(start, end, span, rows, len(found) > MOST_ROWS)


def _statement(wanted: list[Piece]) -> tuple[str, dict[str, int]]:
    selects: list[str] = []
    asked: dict[str, int] = {}
    for number, piece in enumerate(wanted):
        table = "span_sums WHERE span = :span{0} AND" if piece.span else "minute_sums WHERE"
        where = f"{table} minute >= :start{{0}} AND minute < :end{{0}}".format(number)
        selects.append(f"SELECT {_LIST} FROM {where}")  # noqa: S608 - ours
        asked |= {f"start{number}": piece.start, f"end{number}": piece.end}
        if piece.span:
            asked[f"span{number}"] = piece.span
    return f"{' UNION ALL '.join(selects)} LIMIT :limit", asked
