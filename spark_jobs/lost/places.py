"""Where each delivery's record is, against the group's offsets and the log: read, removed or waiting."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.positions import PartitionPosition, Positions

POSITION = """
topic STRING, topic_id STRING, partition INT, committed BIGINT, first BIGINT, end BIGINT,
done ARRAY<STRUCT<first: BIGINT, next: BIGINT>>"""
FRONTIER = "topic STRING, topic_id STRING, partition INT, decided BIGINT"
PLACE = ["topic", "topic_id", "partition"]


def positions_frame(spark: SparkSession, positions: Positions) -> DataFrame:
    """Returns the existing partitions as a small frame with the columns of POSITION."""
    rows = [
        (p.topic, p.topic_id, p.partition, p.committed, p.first, p.end, list(p.done))
        for p in positions.partitions
    ]
    return spark.createDataFrame(rows, POSITION)


def frontier_frame(spark: SparkSession, decided: Iterable[PartitionPosition]) -> DataFrame:
    """Returns the offsets below which the run of these positions has decided about every record."""
    rows = [(p.topic, p.topic_id, p.partition, max(p.committed or 0, p.first)) for p in decided]
    return spark.createDataFrame(rows, FRONTIER)


def read_by_then(ranges: DataFrame, run: int) -> DataFrame:
    """Returns, by partition, the offset up to which ingests before that run had read."""
    before = ranges.where(f.col("run") < run)
    return before.groupBy(*PLACE).agg(f.max("next").alias("ingested"))


def undecided(records: DataFrame, frontier: DataFrame, ingested: DataFrame) -> DataFrame:
    """Returns the envelopes that no earlier run has decided about."""
    known = f.broadcast(frontier.join(ingested, PLACE, "inner"))
    found = records.where(f.col("problem").isNull()).join(known, PLACE, "left")
    new = f.col("decided").isNull() | (f.col("offset") >= f.least("decided", "ingested"))
    return found.where(new).select(*records.columns)


def decided(records: DataFrame, frontier: DataFrame, ingested: DataFrame) -> DataFrame:
    """Returns the records that an earlier run has decided about."""
    known = f.broadcast(frontier.join(ingested, PLACE, "inner"))
    found = records.join(known, PLACE, "inner")
    return found.where(f.col("offset") < f.least("decided", "ingested")).select(*records.columns)


def placed(records: DataFrame, positions: DataFrame, taken_at: int) -> DataFrame:
    """Adds `read` and `below` to records.

    `read`: the group committed the offset, or completed it above the committed one. `below`: Kafka removed
    the record, or its topic. Both are false for a log that was made after the positions were taken.
    """
    names = {"first": "log_first", "end": "log_end", "done": "log_done"}
    known = f.broadcast(positions.withColumnsRenamed(names))
    found = records.join(known, PLACE, "left")
    completed = f.exists(
        f.col("log_done"),
        lambda run: (f.col("offset") >= run["first"]) & (f.col("offset") < run["next"]),
    )
    gone = f.col("log_first").isNull()
    below = f.when(gone, f.col("timestamp") < taken_at).otherwise(
        f.col("offset") < f.col("log_first")
    )
    read = (f.col("offset") < f.col("committed")) | completed
    return found.select(
        *(f.col(name) for name in records.columns),
        f.coalesce(read, f.lit(False)).alias("read"),
        f.coalesce(below, f.lit(False)).alias("below"),
        f.col("committed"),
        f.col("log_first"),
    )


def deliveries_of(records: DataFrame) -> DataFrame:
    """Returns one row per delivery of placed records, without the body."""
    kept = [name for name in records.columns if name not in ("deliveries", "body", "problem")]
    return records.select(*kept, f.explode("deliveries").alias("d")).select(
        *kept, "d.delivery_key", "d.receiver"
    )


def origin() -> Column:
    """Returns the record's place as `TOPIC/PARTITION/OFFSET`."""
    return f.concat_ws("/", "topic", "partition", "offset")
