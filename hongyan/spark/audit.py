"""`hongyan spark audit`: the program's side of spark_jobs/audit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hongyan.spark.policy_terms import lane_policies
from hongyan.spark.wiring import JobContext, JobResult
from idempotency.lost.audits import Audit, Audits, put_audits
from idempotency.lost.runs import Runs
from idempotency.sql_ledger import clock_of
from spark_jobs.audit.counts import HOUR_MS
from spark_jobs.audit.job import AuditedLanes, run
from spark_jobs.lost.terms import best_effort_until, in_force

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from backends.sql.database import Database
    from spark_jobs.audit.balance import AuditRow

JOB: Final = "audit"
SETTLED_MS: Final = HOUR_MS
"""An hour is looked at until so long after its end, and until nothing of it waits or is unexplained."""
_DAY_HOURS: Final = 24
MOST_DOUBLES: Final = 20
"""Double sends that are shown."""


def run_job(context: JobContext) -> JobResult:
    """Audits the open hours, up to the end of the ingest. Problems: deliveries that nothing explains."""
    database = context.database
    clock = clock_of(database)
    ingest = Runs(database, clock).newest("ingest")
    watermark = ingest.watermark if ingest else None
    if watermark is None:
        return JobResult(figures={"rows": {"audits": 0}, "unexplained": 0})
    terms = lane_policies(context.settings, database).terms
    lanes = AuditedLanes(
        {lane: one.receipt_lag_ms for lane, one in in_force(terms).items()},
        best_effort_until(terms, context.positions.taken_at),
    )
    window = context.config.open_days * _DAY_HOURS * HOUR_MS
    known = Audits(database, clock).since(watermark - window)
    hours = open_hours(known, watermark, window, lanes.receipt_lag_ms)
    figures = run(context.spark, context.warehouse, context.config, context.positions, hours, lanes)
    audits = [_audit(row, watermark) for row in figures.rows]

    def also(connection: Connection) -> None:
        put_audits(connection, context.run_id, audits)

    return JobResult(figures.as_json(), watermark, also, problems=figures.unexplained)


def open_hours(
    known: Sequence[Audit], watermark: int, window: int, receipt_lag_ms: Mapping[str, int]
) -> Collection[int]:
    """Returns the hours of the window that must be looked at (again).

    Without an audit; not over, or hardly over, at the last one; with deliveries that waited or were
    unexplained; with receipts that were due then and are late now.
    """
    newest = watermark // HOUR_MS * HOUR_MS
    every = range(newest, newest - window, -HOUR_MS)
    audits: dict[int, list[Audit]] = {}
    for one in known:
        audits.setdefault(one.hour, []).append(one)
    return [
        hour
        for hour in every
        if not audits.get(hour)
        or any(_is_open(one, watermark, receipt_lag_ms.get(one.lane, 0)) for one in audits[hour])
    ]


def _is_open(audit: Audit, watermark: int, lag_ms: int) -> bool:
    seen_until: int = audit.counts.get("until", 0)
    if seen_until < audit.hour + HOUR_MS + SETTLED_MS:
        return watermark > seen_until
    if audit.unexplained or audit.counts.get("waiting"):
        return True
    late_at = audit.hour + HOUR_MS + lag_ms
    due = audit.counts.get("explained", {}).get("receipts", {}).get("due")
    return bool(due and seen_until < late_at <= watermark)


def _audit(row: AuditRow, watermark: int) -> Audit:
    return Audit(row.hour, row.lane, {**row.counts, "until": watermark}, row.unexplained)


def show(database: Database, window_ms: int = _DAY_HOURS * HOUR_MS) -> None:
    """Prints the audits of the window before the newest audited hour, and the newest double sends."""
    from hongyan.output.audit import audit_table, double_lines, explanations
    from hongyan.terminal import out

    stored = Audits(database, clock_of(database))
    every = stored.since(0)
    since = every[-1].hour - window_ms if every else 0
    audits = [one for one in every if one.hour > since]
    if not audits:
        out().print("no hour is audited yet: the warehouse has no records")
        return
    out().print(audit_table(audits))
    for line in [*explanations(audits), *double_lines(stored.doubles(since, MOST_DOUBLES))]:
        out().print(line, markup=False)
