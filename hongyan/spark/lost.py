"""`hongyan spark lost`: proposes lost deliveries, and makes findings of them when the run ends."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, text

from hongyan.spark.policy_terms import lane_policies
from hongyan.spark.rebuild import keys_by
from hongyan.spark.wiring import JobContext, JobResult, jdbc_login
from idempotency.archive.contract import folder_of
from idempotency.lost.candidates import Candidates, promote
from idempotency.lost.runs import Runs, SparkRun
from idempotency.sql_ledger import clock_of
from spark_jobs.ingest.bodies import drop_bodies
from spark_jobs.lost.job import run
from spark_jobs.lost.scope import RunScope
from spark_jobs.positions import positions_from

JOB: Final = "lost"
MOST_COMPARED: Final = 1_000_000
"""Deliveries of the hours compared; with more of them, hours are compared once an hour."""
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_IDENTITY: Final = text("SELECT id FROM ledger_identity")


def run_job(context: JobContext) -> JobResult:
    """Runs the job on the positions and the warehouse of this cycle.

    The result's `also` promotes the candidates in the transaction that ends the run. Raises SparkTrouble
    (LedgerAway: this run finds nothing), LedgerError, SqlError, PolicyError.
    """
    settings, database = context.settings, context.database
    clock = clock_of(database)
    Candidates(database, clock).clear(context.run_id)
    policies = lane_policies(settings, database)
    with database.begin() as connection:
        identity = str(connection.execute(_IDENTITY).scalar_one())
    runs = Runs(database, clock)
    ingest = runs.newest("ingest")
    last, now = runs.newest(JOB), context.positions.taken_at
    scope = scope_of(last, identity, now, context.config.open_days)
    decided = scope.decided
    bodies_due = decided is None or (decided.taken_at // _HOUR_MS < now // _HOUR_MS)
    archive = settings.recovery.archive_dir
    figures = run(
        context.spark,
        context.warehouse,
        context.config,
        context.run_id,
        context.positions,
        policies.terms,
        scope=scope,
        book=jdbc_login(settings.database.url, settings.base, "database.url"),
        archive=""
        if database.is_postgres
        else str(folder_of(database.url.database, archive, settings.base)),
        # Once an hour: each time is a commit that rewrites files.
        on_owned=partial(drop_bodies, context.warehouse) if bodies_due else None,
        keys_of=keys_by(settings.database.payload_key),
    )

    def also(connection: Connection) -> None:
        promote(
            connection,
            context.run_id,
            clock(connection),
            looked=figures.looked,
            resending=policies.resending,
        )

    return JobResult(
        figures={**figures.as_json(), "identity": identity, **compared_by(last, scope, now)},
        watermark=ingest.watermark if ingest is not None else None,
        also=also,
        problems=sum(figures.findings.values()),
    )


def scope_of(last: SparkRun | None, identity: str, now: int, open_days: int) -> RunScope:
    """Returns the part that the last run left to do. `now`: epoch milliseconds.

    Hours are compared from the one before the last comparison on. All of them are compared after a change
    of the ledger's identity (a restored backup), and those of the open days in a day's first run.
    """
    decided = positions_from(last.positions) if last is not None else None
    if last is None or decided is None:
        return RunScope()
    figures = last.figures
    return RunScope(
        run=last.id,
        decided=decided,
        since=_since(last),
        hours_from=_hours_from(figures, identity, decided.taken_at, now, open_days),
        restored_at=_restored_at(figures, identity, now),
    )


def compared_by(last: SparkRun | None, scope: RunScope, now: int) -> dict[str, int]:
    """Returns the figures of the last comparison of hours, for the next run: its time, and of a run that
    made none the earlier one's deliveries."""
    if last is None or scope.hours_from is not None:
        return {"compared_at": now}
    names = ("compared", "compared_at")
    return {name: last.figures[name] for name in names if name in last.figures}


def _since(last: SparkRun) -> date | None:
    if last.watermark is None:
        return None
    oldest = last.figures.get("oldest_day")
    newest = datetime.fromtimestamp(last.watermark / 1000, UTC).date()
    return min(newest, date.fromisoformat(oldest) if oldest else newest) - timedelta(days=1)


def _restored_at(figures: dict[str, Any], identity: str, now: int) -> int:
    """Returns the time of the run that first saw this identity after another one; 0: none did."""
    known: int = figures.get("restored_at", 0)
    return now if figures.get("identity", identity) != identity else known


def _hours_from(
    figures: dict[str, Any], identity: str, last_at: int, now: int, open_days: int
) -> int | None:
    if figures.get("identity") != identity:
        return 0
    if last_at // _DAY_MS < now // _DAY_MS:
        return (now // _DAY_MS - open_days) * _DAY_MS
    compared_at = int(figures.get("compared_at", last_at))
    if figures.get("compared", 0) > MOST_COMPARED and compared_at // _HOUR_MS == now // _HOUR_MS:
        return None
    return (compared_at // _HOUR_MS - 1) * _HOUR_MS
