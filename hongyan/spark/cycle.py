"""A cycle: Kafka's positions, then one job after another, each with a row in `spark_runs`.

Order of every cycle: positions, ingest, then the others. Only so an honest commit makes each finding true.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import Any, Final

import structlog

from backends.settings import Settings
from backends.sql.database import Database
from hongyan.database import existing
from hongyan.errors import judged
from hongyan.spark.duty import HeldDuty, held_duty
from hongyan.spark.jars import jar_files
from hongyan.spark.wiring import JobContext, JobResult, job_config
from idempotency.fleet.duties import Duties
from idempotency.lost.runs import Runs, SparkRun
from idempotency.sql_ledger import clock_of
from spark_jobs.config import JobConfig
from spark_jobs.errors import SparkTrouble
from spark_jobs.jvm import Usage, usage_of
from spark_jobs.positions import Positions
from spark_jobs.session import close_session, open_session, require_alive
from spark_jobs.warehouse import SPARK_ERRORS, Warehouse, cause_of

log = structlog.get_logger(__name__)

INGEST: Final = "ingest"
AUDIT: Final = "audit"
JOBS: Final = (INGEST, "lost", "rebuild", AUDIT)
"""All jobs in the order of a cycle. `lost` reads nothing of the rebuild: findings do not wait for it."""
VACUUM_S: Final = 3_600.0
"""Time between two removals of files that no table holds any more."""
_MS: Final = 1_000
Say = Callable[[str], None]


@dataclass(frozen=True)
class EndedJob:
    """One job of a cycle."""

    job: str
    run_id: int
    result: JobResult | None
    """None: it failed."""
    error: str = ""


class Cycle:
    """Runs jobs in one Spark session."""

    def __init__(
        self,
        settings: Settings,
        config: JobConfig,
        warehouse: Warehouse,
        database: Database,
        duty: HeldDuty,
        holder: str,
    ) -> None:
        self._settings = settings
        self._config = config
        self._warehouse = warehouse
        self._database = database
        self._duty = duty
        self._holder = holder
        self.runs = Runs(database, clock_of(database))

    def run(self, jobs: Sequence[str], stop: threading.Event | None = None) -> list[EndedJob]:
        """Runs the jobs, in their order. Each failure is recorded. After a failed ingest nothing runs, and
        after any other failure no audit: a broken rebuild holds up no finding. `stop` ends the cycle after
        the job at work. Raises LedgerError, RunOvertaken, NotDone, and NoSpark once Spark ended."""
        ended: list[EndedJob] = []
        positions: list[Positions] = []
        for job in jobs:
            failed = {one.job for one in ended if one.error}
            if (
                INGEST in failed
                or (job == AUDIT and failed)
                or (stop is not None and stop.is_set())
            ):
                break
            ended.append(self._job(job, positions))
        return ended

    def vacuum(self) -> None:
        """Removes files that no table holds any more. Raises WarehouseTrouble."""
        self._warehouse.vacuum()

    def _job(self, job: str, positions: list[Positions]) -> EndedJob:
        """Runs one job. The first one takes the positions for all."""
        self._duty.check()
        require_alive(self._warehouse.spark)
        run_id = self.runs.begin(job, self._holder)
        begun, before = monotonic(), usage_of(self._warehouse.spark)
        try:
            if not positions:
                positions.append(self._positions())
            self.runs.positions(run_id, positions[0].as_json())
            result = _module(job).run_job(self._context(run_id, positions[0]))
            self._duty.check()
        except Exception as exc:
            error = _sentence(exc)
            self.runs.failed(run_id, error)
            log.warning("spark_job_failed", job=job, run=run_id, cause=error)
            if judged(exc) is None and not isinstance(exc, SparkTrouble):
                log.error("unforeseen", job=job, exc_info=exc)
            return EndedJob(job, run_id, None, error)
        figures = {**result.figures, **_used(before, usage_of(self._warehouse.spark), begun)}
        self.runs.done(run_id, result.watermark, figures, result.also)
        log.info("spark_job_done", job=job, run=run_id, **figures)
        return EndedJob(job, run_id, JobResult(figures, result.watermark, None, result.problems))

    def _context(self, run_id: int, positions: Positions) -> JobContext:
        return JobContext(
            settings=self._settings,
            config=self._config,
            spark=self._warehouse.spark,
            warehouse=self._warehouse,
            run_id=run_id,
            positions=positions,
            database=self._database,
            positions_now=self._positions,
        )

    def _positions(self) -> Positions:
        from hongyan.spark.positions import read_positions
        from spark_jobs.positions import positions_from

        newest: SparkRun | None = self.runs.newest(INGEST)
        earlier = positions_from(newest.positions) if newest else None
        return read_positions(self._settings.kafka, earlier)


def available(jobs: Sequence[str]) -> list[str]:
    """Returns the jobs that this version has."""
    return [job for job in jobs if find_spec(f"hongyan.spark.{job}") is not None]


@contextmanager
def open_cycle(settings: Settings, say: Say) -> Iterator[Cycle]:
    """Yields a cycle whose process has the duty. Raises SettingsError, NoJars, SparkTrouble, NotDone,
    LedgerError."""
    config = job_config(settings)
    holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    with closing(existing(settings)) as database:
        clock = clock_of(database)
        with held_duty(Duties(database, clock), Runs(database, clock), holder) as duty:
            spark_settings = settings.spark
            spark = open_session(
                *(config, spark_settings.master, _jars(settings, say)),
                *(spark_settings.properties, "hongyan"),
            )
            try:
                warehouse = Warehouse(spark, config.warehouse)
                yield Cycle(settings, config, warehouse, database, duty, holder)
            finally:
                close_session(spark)


def _jars(settings: Settings, say: Say) -> Sequence[str]:
    """Returns the jars of the session; none where spark-submit was given them."""
    if not settings.spark.jars and not settings.spark.master:
        return ()
    return jar_files(settings.spark.jars, say)


def _module(job: str) -> Any:
    return import_module(f"hongyan.spark.{job}")


def _sentence(exc: Exception) -> str:
    if found := judged(exc):
        return found[0]
    if isinstance(exc, SPARK_ERRORS):
        return f"Spark: {cause_of(exc)}"
    return f"a fault of ours: {type(exc).__name__}"


def _used(before: Usage, after: Usage, begun: float) -> dict[str, int]:
    return {
        "ms": int((monotonic() - begun) * _MS),
        "bytes_shuffled": after.shuffled - before.shuffled,
        "bytes_read": after.read - before.read,
        "tasks": after.tasks - before.tasks,
        "peak_heap": after.peak_memory,
    }
