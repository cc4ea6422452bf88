"""Kafka's deliveries of some hours, each key once, with what letters and the rebuilt trace know of it.

A record's hour is that of its time in `records`. A record is `passed` below the group's committed offset
of that topic: then the ledger must have its deliveries. A record that is no envelope is one unit by its
place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from message.states import State
from spark_jobs.positions import Positions
from tracing.events import Stage

HOUR_MS: Final = 3_600_000
_DAY_S: Final = 86_400
GROUP: Final = ("lane", "hour")
_POSITIONS: Final = (
    "topic STRING, topic_id STRING, partition INT, topic_lane STRING, committed BIGINT"
)
_BEFORE_THE_WORKER: Final = (
    Stage.ACCEPTED,
    Stage.DEAD_LETTER,
    Stage.RECALL_ASKED,
    Stage.REMOVED,
)
"""Stages that prove nothing of a worker."""
_SENT: Final = (State.SENT, State.DELIVERED, State.UNDELIVERED)
_BY_POLICY: Final = "claimed:policy"


class OffsetRun(NamedTuple):
    """Offsets of one hour, one after another, all passed or none."""

    topic: str
    partition: int
    first: int
    next: int
    lane: str
    hour: int
    """Start of the hour, epoch milliseconds."""
    passed: bool


def days_of(hours: Collection[int], around: int = 0) -> list[date]:
    """Returns the UTC days of these hours, and `around` days on each side."""
    steps = range(-around, around + 1)
    return sorted(
        {
            datetime.fromtimestamp(hour / 1_000 + step * _DAY_S, UTC).date()
            for hour in hours
            for step in steps
        }
    )


def with_neighbours(hours: Collection[int]) -> list[int]:
    """Returns these hours and those next to them: clocks of producers differ by less."""
    return sorted({hour + step for hour in hours for step in (-HOUR_MS, 0, HOUR_MS)})


def hour_of(at: Column) -> Column:
    """Returns the start of the hour, epoch milliseconds."""
    return f.floor(at / HOUR_MS).cast("bigint") * HOUR_MS


def positions_frame(spark: SparkSession, positions: Positions) -> DataFrame:
    """Returns the lanes' partitions."""
    rows = [
        (one.topic, one.topic_id, one.partition, one.lane, one.committed)
        for one in positions.partitions
        if one.lane
    ]
    return spark.createDataFrame(rows, _POSITIONS)


def placed(records: DataFrame, positions: DataFrame, hours: Collection[int]) -> DataFrame:
    """Returns the records of these hours. `current` is false for a record of a topic that is gone."""
    place = ["topic", "topic_id", "partition"]
    found = records.withColumn("hour", hour_of(f.col("timestamp")))
    found = found.where(f.col("hour").isin(sorted(hours)))
    joined = found.join(f.broadcast(positions), on=place, how="left")
    named = f.transform(
        f.coalesce("deliveries", f.array()),
        lambda one, at: f.coalesce(
            one["delivery_key"], f.concat_ws(":", f.col("message_id"), at.cast("string"))
        ),
    )
    origin = f.concat_ws("/", f.col("topic"), f.col("partition"), f.col("offset"))
    return joined.select(
        "topic",
        "partition",
        "offset",
        f.coalesce("topic_lane", "lane", f.lit("")).alias("lane"),
        "hour",
        origin.alias("origin"),
        f.coalesce(f.col("offset") < f.col("committed"), f.lit(False)).alias("passed"),
        f.col("topic_lane").isNotNull().alias("current"),
        f.col("problem").isNotNull().alias("poison"),
        f.when(f.col("problem").isNull(), named).otherwise(f.array(origin)).alias("keys"),
    )


def offset_runs(records: DataFrame, hours: Collection[int]) -> list[OffsetRun]:
    """Returns the runs of these hours among `placed` records: one per partition and hour where times rise
    with offsets. `records` must have those of the hours around, too: offsets of theirs end a run.
    """
    columns = [*("topic", "partition", "lane", "hour", "passed")]
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    changed = f.struct("hour", "passed")
    begins = f.coalesce(f.lag(changed).over(by_offset) != changed, f.lit(True)).cast("int")
    numbered = (
        records.where("current")
        .select(*columns, "offset")
        .withColumn("begins", begins)
        .withColumn("run", f.sum("begins").over(by_offset))
    )
    found = numbered.groupBy(*columns, "run").agg(
        f.min("offset").alias("first"), (f.max("offset") + 1).alias("next")
    )
    found = found.where(f.col("hour").isin(sorted(hours)))
    rows = found.orderBy("topic", "partition", "first").collect()
    return [OffsetRun(**{name: row[name] for name in OffsetRun._fields}) for row in rows]


def lettered(records: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Adds `dead`: the record is among the dead letters."""
    letters = dead_letters.select("origin").distinct().withColumn("dead", f.lit(True))
    found = records.join(letters, on="origin", how="left")
    return found.withColumn("dead", f.coalesce("dead", f.lit(False)))


def keyed(records: DataFrame) -> DataFrame:
    """Returns one row per lane, hour and key of `lettered` records. `elsewhere`: the key is in another lane
    or hour, too, and the ledger has it once."""
    each = records.select(
        *("lane", "hour", "passed", "current", "poison", "dead"),
        f.explode("keys").alias("delivery_key"),
    ).repartition("delivery_key")
    once = each.groupBy("delivery_key", *GROUP).agg(
        f.max("passed").alias("passed"),
        f.min("current").alias("current"),
        f.max("poison").alias("poison"),
        f.min("dead").alias("dead"),
    )
    places = f.count(f.lit(1)).over(Window.partitionBy("delivery_key"))
    return once.withColumn("elsewhere", places > 1)


def known(deliveries: DataFrame, doubled: DataFrame) -> DataFrame:
    """Returns of each rebuilt delivery what an audit needs. `doubled` has a column of keys."""
    seen = f.exists(
        "timeline", lambda one: ~one["stage"].isin([stage.value for stage in _BEFORE_THE_WORKER])
    )
    twice = doubled.select("delivery_key").distinct().withColumn("doubled", f.lit(True))
    return deliveries.select(
        "delivery_key",
        "account",
        seen.alias("seen"),
        f.array_contains("missing", _BY_POLICY).alias("quiet"),
        (f.size("origins") > 1).alias("several"),
        f.col("state").isin([state.value for state in _SENT]).alias("sent"),
        (f.col("receipts") > 0).alias("reported"),
        f.coalesce("ended_at", "last_at").alias("sent_at"),
    ).join(f.broadcast(twice), on="delivery_key", how="left")


def counted(
    keys: DataFrame, deliveries: DataFrame, reporting: Sequence[str], due_since: Column
) -> DataFrame:
    """Returns the counts per lane and hour. `reporting`: accounts that send receipts; a delivery sent since
    `due_since`, a column of the lane, may still get one."""
    found = keys.join(deliveries, on="delivery_key", how="left")
    seen, sent, reported, quiet, several = (
        f.coalesce(name, f.lit(False)) for name in ("seen", "sent", "reported", "quiet", "several")
    )
    alive = ~f.col("dead") & ~f.col("poison")
    awaited = sent & f.col("account").isin(list(reporting)) & ~reported
    late = f.coalesce(f.col("sent_at") < due_since, f.lit(False))
    elsewhere = f.col("elsewhere") | several
    return found.groupBy(*GROUP).agg(
        f.count(f.lit(1)).alias("kafka"),
        _sum("dead").alias("dead"),
        _sum(f.col("passed") & ~f.col("dead")).alias("passed"),
        _sum(~f.col("passed") & ~f.col("dead")).alias("ahead"),
        _sum(elsewhere & ~f.col("dead")).alias("elsewhere"),
        _sum(~f.col("current")).alias("replaced"),
        _sum(alive & seen).alias("traced"),
        _sum(alive & ~seen & quiet).alias("quiet"),
        _sum(alive & ~seen & ~quiet).alias("unseen"),
        _sum(alive & sent).alias("sent"),
        _sum(alive & sent & reported).alias("receipts"),
        _sum(alive & awaited & ~late).alias("due"),
        _sum(alive & awaited & late).alias("silent"),
        _sum(alive & f.coalesce("doubled", f.lit(False))).alias("doubled"),
    )


def reporting_accounts(deliveries: DataFrame) -> list[str]:
    """Returns the accounts with a receipt among these deliveries."""
    found = deliveries.where((f.col("receipts") > 0) & f.col("account").isNotNull())
    return sorted(row["account"] for row in found.select("account").distinct().collect())


def _sum(condition: Column | str) -> Column:
    column = f.col(condition) if isinstance(condition, str) else condition
    return f.coalesce(f.sum(f.coalesce(column, f.lit(False)).cast("bigint")), f.lit(0))
