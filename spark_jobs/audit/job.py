"""One audit: the counts of some hours, side by side.

    records, letters, rebuilt deliveries    one shuffle by delivery key, grouped by lane and hour
    ledger, findings                        grouped in the database, by the records' offsets
    balance                                 on the driver: a row per lane and hour

The positions must be those of the run's own ingest, and the ledger is asked last: an offset that was
committed before has its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.audit import counts, doubles, ledger
from spark_jobs.audit.balance import AuditRow, HourCounts, Life, balanced
from spark_jobs.config import JobConfig
from spark_jobs.positions import Positions
from spark_jobs.rebuild import gaps
from spark_jobs.warehouse import Warehouse

FRESH_MS: Final = 60_000
"""A row written so shortly before the positions were taken may have its events still on their way."""
SILENCE_MS: Final = 600_000
"""A life without its end is taken for killed after so long without a record."""

Key = tuple[str, int]
"""Lane and start of the hour."""


@dataclass(frozen=True)
class AuditedLanes:
    """Terms of the lanes' policies that an audit needs."""

    receipt_lag_ms: Mapping[str, int]
    no_ledger_until: Mapping[str, int] = field(default_factory=dict)
    """Last time, epoch milliseconds, at which a lane kept no ledger."""


@dataclass(frozen=True)
class AuditFigures:
    """The rows, and their sums."""

    rows: Sequence[AuditRow] = field(repr=False)

    @property
    def unexplained(self) -> int:
        """Deliveries whose difference nothing explains."""
        return sum(row.unexplained for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Returns the figures for `spark_runs`."""
        names = ("kafka", "ledger", "dead", "waiting", "traced", "sent", "receipts", "doubled")
        sums = {name: sum(row.counts[name] or 0 for row in self.rows) for name in names}
        return {"rows": {"audits": len(self.rows)}, "unexplained": self.unexplained, **sums}


def run(
    spark: SparkSession,
    warehouse: Warehouse,
    config: JobConfig,
    positions: Positions,
    hours: Collection[int],
    lanes: AuditedLanes,
) -> AuditFigures:
    """Audits these hours, each given by its start in epoch milliseconds. Writes nothing."""
    if not hours:
        return AuditFigures([])
    days = counts.days_of(hours)
    frame = counts.positions_frame(spark, positions)
    records = counts.placed(warehouse.read("records", days), frame, hours)
    letters = warehouse.read("dead_letters").where(f.col("day") >= f.lit(days[0]))
    records = counts.lettered(records, letters).persist()
    try:
        found = _counted(warehouse, records, hours, lanes, positions.taken_at)
        runs = _offset_runs(warehouse, frame, hours)
        fresh_since = positions.taken_at - FRESH_MS
        rows = ledger.rows_of_runs(spark, config, runs, fresh_since)
        named = _findings(records, ledger.findings(spark, config.ledger))
    finally:
        records.unpersist()
    holes = _holes(warehouse, hours)
    keys = {*found, *holes}
    merged = [
        _merged(key, found.get(key, {}), rows, named.get(key, {}), holes.get(key, 0), lanes)
        for key in sorted(keys)
    ]
    return AuditFigures(balanced(merged, _lives(warehouse, positions.taken_at)))


def _offset_runs(
    warehouse: Warehouse, positions: DataFrame, hours: Collection[int]
) -> list[counts.OffsetRun]:
    around = counts.with_neighbours(hours)
    records = warehouse.read("records", counts.days_of(around))
    return counts.offset_runs(counts.placed(records, positions, around), hours)


def _counted(
    warehouse: Warehouse, records: DataFrame, hours: Collection[int], lanes: AuditedLanes, now: int
) -> dict[Key, dict[str, int]]:
    deliveries = warehouse.read("deliveries", counts.days_of(hours, around=1))
    reporting = counts.reporting_accounts(deliveries)
    known = counts.known(deliveries, doubles.double_keys(deliveries))
    grouped = counts.counted(counts.keyed(records), known, reporting, _due_since(lanes, now))
    names = [name for name in grouped.columns if name not in counts.GROUP]
    return {
        (row["lane"], row["hour"]): {name: row[name] for name in names} for row in grouped.collect()
    }


def _due_since(lanes: AuditedLanes, now: int) -> Column:
    """Returns the time since which a delivery sent by its lane may still get a receipt."""
    since = f.lit(now)
    for lane, lag in lanes.receipt_lag_ms.items():
        since = f.when(f.col("lane") == lane, f.lit(now - lag)).otherwise(since)
    return since


def _findings(records: DataFrame, findings: DataFrame) -> dict[Key, dict[str, int]]:
    """Returns findings by lane, hour and cause."""
    found = records.join(findings, on="origin", how="inner")
    named: dict[Key, dict[str, int]] = defaultdict(dict)
    for row in found.groupBy(*counts.GROUP, "cause").agg(f.sum("findings").alias("n")).collect():
        named[row["lane"], row["hour"]][row["cause"]] = row["n"]
    return named


def _holes(warehouse: Warehouse, hours: Collection[int]) -> dict[Key, int]:
    """Returns the offsets that were gone, by lane and their latest possible hour."""
    holes = warehouse.read("holes").where(f.col("lane").isNotNull())
    at = counts.hour_of(f.coalesce("before", "after", "at"))
    within = holes.withColumn("hour", at).where(f.col("hour").isin(sorted(hours)))
    found = within.groupBy(*counts.GROUP).agg(f.sum(f.col("next") - f.col("first")).alias("n"))
    return {(row["lane"], row["hour"]): row["n"] for row in found.collect()}


def _lives(warehouse: Warehouse, now: int) -> list[Life]:
    """Returns the lives that lost events or were killed, those that ended first in front."""
    records = warehouse.read("trace_records")
    found = gaps.by_life(records.where(f.col("life").isNotNull())).where(
        (f.col("missing") + f.col("dropped") > 0) | ~f.col("ended")
    )
    lives = [
        Life(
            row["first_at"],
            row["last_at"],
            row["missing"] + row["dropped"],
            not row["ended"] and row["last_at"] < now - SILENCE_MS,
        )
        for row in found.collect()
    ]
    return sorted(lives, key=lambda life: life.last_at)


def _merged(
    key: Key,
    found: Mapping[str, int],
    rows: Sequence[ledger.RunRows],
    named: Mapping[str, int],
    holes: int,
    lanes: AuditedLanes,
) -> HourCounts:
    lane, hour = key
    own = [one for one in rows if (one.run.lane, one.run.hour) == key]
    return HourCounts(
        lane,
        hour,
        **found,
        rows_passed=sum(one.rows for one in own if one.run.passed),
        rows_ahead=sum(one.rows for one in own if not one.run.passed),
        fresh=sum(one.fresh for one in own),
        found=named,
        holes=holes,
        has_ledger=lanes.no_ledger_until.get(lane, -1) < hour,
    )
