"""The roll-up: sums of all processes together, by minute, ten minutes, hour and day.

Only minutes that were written since the last roll-up are made anew, and the longer spans that contain them.
Each span is made from the whole next shorter one, so that a repeated roll-up changes nothing. One process
at a time does it.

Ages count from the last roll-up, not from now. So sums that an outage of recovery has kept from the roll-up
are neither passed over nor removed, and a span is never made from a part of its minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import Connection, TextClause, text

from backends.sql.database import Database
from idempotency.sums.counter import MINUTE_MS, STAGES, SumRow
from idempotency.sums.sketch import LatencySketch
from idempotency.sums.store import COLUMNS, as_json, upsert_spans
from idempotency.transactions import Clock, LedgerPart

HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
SPANS: Final = (MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, DAY_MS)
"""Each is a multiple of the one before."""
KEPT_MS: Final = dict(zip(SPANS, (2 * DAY_MS, 14 * DAY_MS, 90 * DAY_MS, 730 * DAY_MS), strict=True))
"""Span to the age at which its sums are removed."""
RAW_KEPT_MS: Final = 6 * HOUR_MS
"""Age at which the sums of single processes are removed."""
SLACK_MS: Final = MINUTE_MS
"""Longest time between a write's clock and its commit."""
_MOST: Final = 200
"""Minutes that one roll-up makes anew."""
_MOST_MS: Final = HOUR_MS
"""Time of writing that one roll-up covers."""
_SLOTS: Final = 120
"""Slots of a span that are removed in one transaction."""
_LIST: Final = ", ".join(COLUMNS)

_MARK: Final = text("SELECT rolled_at FROM sum_marks")
_SET_MARK: Final = text("UPDATE sum_marks SET rolled_at = :mark")
_FIRST: Final = text("SELECT min(written_at) FROM minute_sums WHERE written_at > :mark")
_WRITTEN: Final = text("""
SELECT minute, max(written_at) AS written_at FROM minute_sums
 WHERE written_at >= :since AND written_at < :until AND minute >= :oldest
 GROUP BY minute ORDER BY max(written_at), minute LIMIT :limit""")
_RAW: Final = text(f"SELECT {_LIST} FROM minute_sums WHERE minute = :minute")  # noqa: S608 - ours
_SHORTER: Final = text(f"""
SELECT {_LIST} FROM span_sums
 WHERE span = :span AND minute >= :start AND minute < :end""")  # noqa: S608 - ours
_OLDEST_RAW: Final = text("SELECT min(minute) FROM minute_sums")
_FORGET_RAW: Final = text("DELETE FROM minute_sums WHERE minute < :before")
_OLDEST: Final = text("SELECT min(minute) FROM span_sums WHERE span = :span")
_FORGET: Final = text("DELETE FROM span_sums WHERE span = :span AND minute < :before")


class SumRollup(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._upsert = upsert_spans(database.is_postgres)

    def run(self) -> int:
        """Makes the spans anew whose minutes were written lately. Returns the number of minutes. After an
        outage it takes several calls, each of which goes on where the last one ended."""
        with self._begin() as (connection, now):
            mark = int(connection.execute(_MARK).scalar_one())
            first = connection.execute(_FIRST, {"mark": mark}).scalar_one()
            until = (now if first is None else first) + _MOST_MS
            # Every process's sums of such a minute are still there: `forget` leaves an hour more.
            oldest = min(mark, now) - RAW_KEPT_MS + HOUR_MS
            asked = {"since": mark - SLACK_MS, "until": until, "oldest": oldest}
            found = connection.execute(_WRITTEN, {**asked, "limit": _MOST}).all()
            minutes = [int(row.minute) for row in found]
            self._make(connection, minutes)
            full = len(found) == _MOST
            new = max(mark + 1, int(found[-1].written_at)) if full else min(now, until)
            connection.execute(_SET_MARK, {"mark": new})
        return len(minutes)

    def forget(self) -> bool:
        """Removes sums that were too old at the last roll-up, the oldest first. Returns whether there are
        more of them."""
        with self._begin() as (connection, now):
            rolled_at = min(int(connection.execute(_MARK).scalar_one()), now)
            asked = {"before": rolled_at - RAW_KEPT_MS}
            more = [_removed(connection, _OLDEST_RAW, _FORGET_RAW, MINUTE_MS, asked)]
            for span, kept in KEPT_MS.items():
                asked = {"span": span, "before": rolled_at - kept}
                more.append(_removed(connection, _OLDEST, _FORGET, span, asked))
        return any(more)

    def _make(self, connection: Connection, minutes: Sequence[int]) -> None:
        """Makes one slot at a time: after an outage there are many, each with rows of every process."""
        for minute in sorted(minutes):
            rows = _rows(connection.execute(_RAW, {"minute": minute}).all())
            self._write(connection, MINUTE_MS, merged(rows, MINUTE_MS))
        for shorter, span in pairwise(SPANS):
            for start in sorted({minute // span * span for minute in minutes}):
                rows = _within(connection, shorter, start, span)
                self._write(connection, span, merged(rows, span))

    def _write(self, connection: Connection, span: int, rows: Sequence[SumRow]) -> None:
        if rows:
            connection.execute(self._upsert, {"span": span, "rows": as_json(rows)})


def _removed(
    connection: Connection, oldest: TextClause, forget: TextClause, span: int, asked: dict[str, int]
) -> bool:
    """Removes the oldest slots before a time. Returns whether it left some of them."""
    first: int | None = connection.execute(oldest, asked).scalar_one()
    if first is None:
        return False
    before = min(asked["before"], first + _SLOTS * span)
    connection.execute(forget, {**asked, "before": before})
    return before < asked["before"]


def merged(rows: Iterable[SumRow], span: int) -> list[SumRow]:
    """Returns one row for each span, lane, account and outcome."""
    groups: dict[tuple[int, str, str, str], list[SumRow]] = {}
    for row in rows:
        groups.setdefault((row.minute // span * span, *row[1:4]), []).append(row)
    return [_sum(key, group) for key, group in groups.items()]


def _sum(key: tuple[int, str, str, str], group: Sequence[SumRow]) -> SumRow:
    if len(group) == 1:
        return group[0]._replace(minute=key[0])
    sketches: list[str] = []
    for stage in STAGES:
        sketch = LatencySketch()
        for row in group:
            sketch.merge(getattr(row, stage))
        sketches.append(sketch.encoded())
    minute, lane, account, outcome = key
    number = sum(row.deliveries for row in group)
    return SumRow(minute, lane, account, outcome, number, *sketches)


def _within(connection: Connection, shorter: int, start: int, span: int) -> list[SumRow]:
    asked = {"span": shorter, "start": start, "end": start + span}
    return _rows(connection.execute(_SHORTER, asked).all())


def _rows(found: Iterable[Any]) -> list[SumRow]:
    return [SumRow(*row) for row in found]
