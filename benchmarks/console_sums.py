"""Sums of the console's benchmark, made from its deliveries: minute, ten-minute, hour and day rows.

Each span covers as many days as the product keeps of it. A delivery counts in the minute of its claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from benchmarks.console_sql import DayOfRows
from idempotency.sums.counter import SumRow
from idempotency.sums.rollup import DAY_MS, HOUR_MS, KEPT_MS, RAW_KEPT_MS, SPANS, merged
from idempotency.sums.store import COLUMNS

INTAKE_MS: Final = 5
QUEUE_MS: Final = 10
_CALLED: Final = ("SENT", "DELIVERED", "UNDELIVERED")
_MARKS: Final = ", ".join(["%s"] * len(COLUMNS))
_KEY: Final = "minute, lane, account, outcome"
# 16 buckets to each doubling, as in idempotency/sums/sketch.py; each time here is 32 ms or longer.
_SHIFT: Final = "(floor(ln({0}::float8) / ln(2::float8) + 1e-9)::int - 4)"
_BUCKET: Final = f"({_SHIFT} * 16 + ({{0}} >> {_SHIFT}))"


def spans_of(number: int, days: int) -> list[int]:
    """Returns the spans that are counted from the rows of a day; days have numbers from the oldest on."""
    age_ms = (days - number) * DAY_MS
    return [span for span in SPANS[:-1] if age_ms <= KEPT_MS[span]]


def sums_of_day(connection: psycopg.Connection[Any], day: DayOfRows, spans: Sequence[int]) -> None:
    """Makes the day's rows of these spans, and its row of the day by the product's own merge."""
    for span in spans:
        connection.execute(_spans(span, day.day).encode())
    hours = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM span_sums WHERE span = %s AND minute >= %s AND minute < %s",
        (HOUR_MS, day.day * DAY_MS, (day.day + 1) * DAY_MS),
    ).fetchall()
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO span_sums (span, {', '.join(COLUMNS)}) VALUES ({DAY_MS}, {_MARKS})".encode(),
            merged((SumRow(*row) for row in hours), DAY_MS),
        )


def sums_of_processes(connection: psycopg.Connection[Any], day: DayOfRows) -> None:
    """Makes the processes' own minutes of the last hours, and counts everything as rolled up."""
    connection.execute(_minutes(day.day, day.now_ms - RAW_KEPT_MS).encode())
    connection.execute("UPDATE sum_marks SET rolled_at = %s", (day.now_ms,))


def _spans(span: int, day: int) -> str:
    """Returns the statement that makes a day's rows of one span. A receipt is an outcome of its own, beside
    the send."""
    return (
        f"INSERT INTO span_sums (span, {_KEY}, deliveries, total, intake, queue, call)"
        f" SELECT {span}, {_KEY}, {_SKETCHES} FROM {_counted(day, span, '', '')}"
        f" GROUP BY {_KEY}"
    )


def _minutes(day: int, since: int) -> str:
    return (
        f"INSERT INTO minute_sums ({_KEY}, process, deliveries, total, intake, queue, call, written_at)"
        f" SELECT {_KEY}, owner, {_SKETCHES}, minute + 60000"
        f" FROM {_counted(day, SPANS[0], ', owner', f'AND created_at >= {since}')}"
        f" GROUP BY {_KEY}, owner"
    )


_PAIR: Final = "'[' || {0} || ',' || sum(number) || ']'"
_LENGTHS: Final = """
coalesce('[' || string_agg(bucket || ',' || number, ',' ORDER BY bucket)
    FILTER (WHERE outcome = 'SENT') || ']', '')"""
_SKETCHES: Final = f"""
sum(number), {_LENGTHS},
CASE WHEN outcome = 'SENT' THEN {_PAIR.format(INTAKE_MS)} ELSE '' END,
CASE WHEN outcome = 'SENT' THEN {_PAIR.format(QUEUE_MS)} ELSE '' END, {_LENGTHS}"""


def _counted(day: int, span: int, more: str, condition: str) -> str:
    """Returns the day's numbers by slot, series and bucket."""
    called = ", ".join(f"'{state}'" for state in _CALLED)
    bucket = _BUCKET.format("(updated_at - created_at)")
    return f"""
(SELECT created_at / {span} * {span} AS minute, lane, account, outcome{more},
        CASE WHEN outcome = 'SENT' THEN {bucket} END AS bucket, count(*) AS number
   FROM deliveries CROSS JOIN LATERAL unnest(
        CASE WHEN state IN ({called}) THEN array_remove(ARRAY['SENT', nullif(state, 'SENT')], NULL)
             ELSE ARRAY[state] END) AS outcome
  WHERE day = {day} AND state <> 'IN_FLIGHT' {condition}
  GROUP BY minute, lane, account, outcome{more}, bucket) AS counted"""
