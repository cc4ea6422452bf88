"""One run of the ingest: steps, each by a plan that is kept before anything is read.

A step's commits have the plan's version. `ranges` is the last one: a plan whose version it does not have is
done again, and tables that have the version already stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.storagelevel import StorageLevel

from spark_jobs.config import JobConfig
from spark_jobs.errors import WarehouseTrouble
from spark_jobs.frames import day_of, frame_of
from spark_jobs.ingest import dead_letters, trace
from spark_jobs.ingest.kafka_source import kafka_records
from spark_jobs.ingest.plan import (
    DEAD,
    DISPATCH,
    LIMITS,
    TRACE,
    Hole,
    IngestPlan,
    Known,
    Range,
    make_plan,
    revised,
)
from spark_jobs.ingest.plan_files import PlanFiles
from spark_jobs.ingest.records import records_of
from spark_jobs.ingest.secrets import with_secrets
from spark_jobs.positions import Positions
from spark_jobs.warehouse import SPARK_ERRORS, Warehouse, cause_of

APP: Final = "ingest"
_REVISIONS: Final = 20
"""Most times that a step is planned anew since records were removed while it read them."""
_ROWS_PER_TASK: Final = 200_000
_TRACE_WEIGHT: Final = 100
"""A record of the trace topic counts as so many others."""
_LAST: Final = {DISPATCH: "records", TRACE: "trace_records", DEAD: "dead_letters"}
"""The table that is written last of each kind of topic."""
_WRITTEN: Final = (
    *("records", "events", "foreign", "trace_records", "dead_letters"),
    "holes",
    "ranges",
)
_PLACED: Final = "run BIGINT, topic STRING, topic_id STRING, partition INT, first BIGINT"
_RANGES: Final = f"{_PLACED}, next BIGINT, at BIGINT"
_HOLES: Final = (
    f"{_PLACED}, next BIGINT, lane STRING, after BIGINT, before BIGINT, at BIGINT, reason STRING"
)


@dataclass
class IngestFigures:
    """Figures of one run."""

    watermark: int | None = None
    """Everything that Kafka had at this time is read, epoch milliseconds."""
    steps: int = 0
    offsets: int = 0
    """Offsets read; those of markers and aborted transactions count, too."""
    holes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """Rows written by table."""

    def as_json(self) -> dict[str, Any]:
        """Returns the figures for `spark_runs.figures`."""
        return asdict(self)


def run(
    spark: SparkSession,
    warehouse: Warehouse,
    config: JobConfig,
    run_id: int,
    positions: Positions,
    positions_now: Callable[[], Positions] | None = None,
    limits: Mapping[str, int] = LIMITS,
) -> IngestFigures:
    """Reads everything up to the positions. `positions_now` asks Kafka again, if records are removed while
    they are read. Raises WarehouseTrouble, and what `positions_now` raises."""
    return _Run(spark, warehouse, config, run_id, positions_now).go(positions, limits)


class _Run:
    """One run's steps."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        config: JobConfig,
        run_id: int,
        positions_now: Callable[[], Positions] | None,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._config = config
        self._run_id = run_id
        self._positions_now = positions_now
        self._plans = PlanFiles(spark, warehouse.root)
        self._figures = IngestFigures()
        self._resumes = False
        """Whether tables may have rows of the step already; asking each costs a Spark job."""

    def go(self, positions: Positions, limits: Mapping[str, int]) -> IngestFigures:
        """Ends the step that another run left open, then goes on step by step."""
        prefix, run_id = self._config.topic_prefix, self._run_id
        known, version = self._begun()
        while True:
            plan = make_plan(
                known, positions, prefix, version=version + 1, run=run_id, limits=limits
            )
            if plan.is_empty:
                self._figures.watermark = positions.taken_at
                return self._figures
            self._plans.write(plan)
            self._step(plan)
            known, version = plan.known, plan.version

    def _begun(self) -> tuple[Sequence[Known], int]:
        """Returns what was read so far, and the version of the last step; ends that step if need be."""
        done = self._warehouse.version("ranges", APP)
        plan = self._plans.newest()
        if plan is None or plan.version < done:  # the plans are lost, or a part of them
            return self._known_by_tables(), max(self._warehouse.version(t, APP) for t in _WRITTEN)
        if plan.version > done:
            self._resumes = True
            self._step(plan)
            self._resumes = False
        return plan.known, plan.version

    def _known_by_tables(self) -> list[Known]:
        place = ("topic", "topic_id", "partition")
        tables = [self._warehouse.read(name).select(*place, "next") for name in ("ranges", "holes")]
        ends = (F.max("next").alias("next"), F.max(F.col("next").isNull()).alias("gone"))
        rows = tables[0].unionByName(tables[1]).groupBy(*place).agg(*ends)
        return [
            Known(row.topic, row.topic_id, row.partition, row.next or 0, since=0, gone=row.gone)
            for row in rows.collect()
        ]

    def _step(self, plan: IngestPlan) -> None:
        """Writes the plan's rows; plans anew while records are removed that it names."""
        for _ in range(_REVISIONS):
            try:
                self._write(plan)
                break
            except (WarehouseTrouble, *SPARK_ERRORS) as exc:
                self._resumes = True
                changed = self._revised(plan)
                if changed is None:
                    raise _trouble(exc) from exc
                self._plans.write(changed)
                plan = changed
        else:
            raise WarehouseTrouble(
                "Kafka removes records faster than the ingest reads them; let its topics keep them longer"
            )
        self._figures.steps += 1
        self._figures.offsets += sum(one.next - one.first for one in plan.ranges)
        self._figures.holes += len(plan.holes)

    def _revised(self, plan: IngestPlan) -> IngestPlan | None:
        if self._positions_now is None:
            return None
        written = [
            kind
            for kind, table in _LAST.items()
            if self._warehouse.version(table, APP) >= plan.version
        ]
        return revised(plan, self._positions_now(), written)

    def _write(self, plan: IngestPlan) -> None:
        if dispatch := plan.of(DISPATCH):
            records = with_secrets(self._spark, self._config, self._kafka(dispatch))
            self._append("records", records_of(records), plan)
        foreign = []
        traced, dead = plan.of(TRACE), plan.of(DEAD)
        parsed = trace.parsed_trace(self._kafka(traced)) if traced else None
        letters = dead_letters.parsed_dead(self._kafka(dead)) if dead else None
        try:
            if parsed is not None:
                parsed = parsed.persist(StorageLevel.MEMORY_AND_DISK)
                self._append("events", trace.events_of(parsed), plan)
                foreign.append(trace.foreign_of(parsed))
            if letters is not None:
                foreign.append(trace.foreign_of(letters))
            self._append_foreign(foreign, plan)
            if parsed is not None:
                self._append("trace_records", trace.trace_records_of(parsed), plan)
            if letters is not None:
                self._append("dead_letters", dead_letters.dead_letters_of(letters), plan)
        finally:
            if parsed is not None:
                parsed.unpersist()
        self._account(plan)

    def _append_foreign(self, frames: Sequence[DataFrame], plan: IngestPlan) -> None:
        found = [frame for frame in frames if not frame.isEmpty()]
        if found:
            self._append("foreign", reduce(DataFrame.unionByName, found), plan)

    def _account(self, plan: IngestPlan) -> None:
        """Writes holes, and at the very end the ranges."""
        if plan.holes:
            self._append("holes", self._placed(_HOLES, plan, plan.holes), plan)
        self._append("ranges", self._placed(_RANGES, plan, plan.ranges), plan)

    def _placed(self, ddl: str, plan: IngestPlan, rows: Sequence[Range | Hole]) -> DataFrame:
        known = [msgspec.to_builtins(one) | {"run": plan.run} for one in rows]
        frame = frame_of(self._spark, ddl, known)
        return frame.withColumn("day", day_of(F.lit(plan.taken_at)))

    def _append(self, table: str, frame: DataFrame, plan: IngestPlan) -> None:
        if self._resumes and self._warehouse.version(table, APP) >= plan.version:
            return
        self._warehouse.append(table, frame, APP, plan.version)
        rows = self._figures.rows
        rows[table] = rows.get(table, 0) + self._warehouse.written_rows(table)

    def _kafka(self, ranges: Sequence[Range]) -> DataFrame:
        """Returns the records of the ranges in as few tasks as their number needs: each makes a file."""
        weight = sum(
            (one.next - one.first) * (_TRACE_WEIGHT if one.kind == TRACE else 1) for one in ranges
        )
        cores = self._spark.sparkContext.defaultParallelism
        tasks = max(cores, -(-weight // _ROWS_PER_TASK))
        return kafka_records(self._spark, self._config, ranges).coalesce(tasks)


def _trouble(exc: Exception) -> WarehouseTrouble:
    if isinstance(exc, WarehouseTrouble):
        return exc
    return WarehouseTrouble(f"Kafka's records were not read: {cause_of(exc)}")
