"""Small tables that a rebuild fills in the transaction that ends its run (docs/spark.md).

    trace_hours    counts and latencies by hour, lane, template and account
    trace_gaps     missing events by life
    trace_doubles  deliveries that were accepted twice

A rebuild knows whole days of `trace_hours`: it replaces them, so that a group without deliveries goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, TextClause, text

DAY_MS: Final = 86_400_000
_ROWS: Final = 500
"""Rows of one statement's execution."""
_FORGET: Final = text("DELETE FROM trace_hours WHERE hour >= :start AND hour < :end")
_HOUR: Final = text("""
INSERT INTO trace_hours (hour, lane, template, account, counts, latencies, run_id)
VALUES (:hour, :lane, :template, :account, :counts, :latencies, :run_id)""")
_GAP: Final = text("""
INSERT INTO trace_gaps (life, first_at, last_at, events, missing, dropped, ended, run_id)
VALUES (:life, :first_at, :last_at, :events, :missing, :dropped, :ended, :run_id)
ON CONFLICT (life) DO UPDATE SET
    first_at = excluded.first_at, last_at = excluded.last_at, events = excluded.events,
    missing = excluded.missing, dropped = excluded.dropped, ended = excluded.ended,
    run_id = excluded.run_id""")
_DOUBLE: Final = text("""
INSERT INTO trace_doubles (delivery_key, lane, at, attempts, run_id)
VALUES (:delivery_key, :lane, :at, :attempts, :run_id)
ON CONFLICT (delivery_key) DO UPDATE SET
    lane = excluded.lane, at = excluded.at, attempts = excluded.attempts, run_id = excluded.run_id""")


class TraceHour(NamedTuple):
    """One group of one hour. `hour` is its start, epoch milliseconds."""

    hour: int
    lane: str
    template: str
    account: str
    counts: Mapping[str, Any]
    latencies: Mapping[str, Sequence[int]]
    """Stage → count, p50, p90, p99, greatest; milliseconds."""


class TraceGap(NamedTuple):
    """One life of a trace writer; times are epoch milliseconds."""

    life: str
    first_at: int
    last_at: int
    events: int
    missing: int
    dropped: int
    ended: bool


class TraceDouble(NamedTuple):
    """One delivery that was accepted twice; `at` is epoch milliseconds."""

    delivery_key: str
    lane: str
    at: int
    attempts: Sequence[Mapping[str, Any]]


def replace_hours(
    connection: Connection, run_id: int, days: Iterable[int], hours: Iterable[TraceHour]
) -> None:
    """Replaces the hours of these days, named by their starts (epoch milliseconds). The caller commits."""
    for start in days:
        connection.execute(_FORGET, {"start": start, "end": start + DAY_MS})
    rows = (
        {
            **row._asdict(),
            "counts": _json(row.counts),
            "latencies": _json(row.latencies),
            "run_id": run_id,
        }
        for row in hours
    )
    _write(connection, _HOUR, rows)


def put_gaps(connection: Connection, run_id: int, gaps: Iterable[TraceGap]) -> None:
    """Writes the gaps of these lives. The caller commits."""
    rows = ({**row._asdict(), "ended": int(row.ended), "run_id": run_id} for row in gaps)
    _write(connection, _GAP, rows)


def put_doubles(connection: Connection, run_id: int, doubles: Iterable[TraceDouble]) -> None:
    """Writes these double sends. The caller commits."""
    rows = ({**row._asdict(), "attempts": _json(row.attempts), "run_id": run_id} for row in doubles)
    _write(connection, _DOUBLE, rows)


def _write(connection: Connection, statement: TextClause, rows: Iterator[dict[str, Any]]) -> None:
    while batch := list(islice(rows, _ROWS)):
        connection.execute(statement, batch)


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
