"""Missing events by life, from the headers of trace records (tracing/record_headers.py).

A life numbers its events from 0. The numbers that its records hold are known; each number below the
greatest that is in none of them is a missing event. A record read twice, or out of order, counts once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

LIVES: Final = 2_000
"""Lives that are looked up by name at most; more are joined."""

_FIELDS: Final = ("life", "first", "events", "timestamp", "dropped", "ended")


class LifeGap(NamedTuple):
    """One life. Times are the broker's, epoch milliseconds."""

    life: str
    first_at: int
    last_at: int
    events: int
    """Events that arrived."""
    missing: int
    dropped: int
    """Events lost before they got a number."""
    ended: bool
    """False: killed, or still running; its last events may be missing."""


def lives_of(trace_records: DataFrame) -> list[str]:
    """Returns the lives that wrote these records."""
    found = trace_records.where(F.col("life").isNotNull()).select("life").distinct().collect()
    return sorted(row["life"] for row in found)


def gaps(trace_records: DataFrame, lives: list[str] | None) -> list[LifeGap]:
    """Returns the gap of each of these lives, over all of its records. None: of every life."""
    named = trace_records.where(F.col("life").isNotNull())
    if lives is None:
        wanted = named
    elif not lives:
        return []
    elif len(lives) <= LIVES:
        wanted = named.where(F.col("life").isin(lives))
    else:
        wanted = named.join(_frame(trace_records, lives), on="life", how="left_semi")
    # Sorted here: Spark would first run the query once more for a sample.
    return sorted(LifeGap(*row) for row in by_life(wanted).collect())


def by_life(trace_records: DataFrame) -> DataFrame:
    """Returns one row per life: the fields of LifeGap."""
    # Both groups by one shuffle.
    together = trace_records.select(*_FIELDS).repartition("life")
    once = together.groupBy("life", "first", "events").agg(
        F.min("timestamp").alias("first_at"),
        F.max("timestamp").alias("last_at"),
        F.max("dropped").alias("dropped"),
        F.bool_or("ended").alias("ended"),
    )
    return once.groupBy("life").agg(
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.sum("events").cast("bigint").alias("events"),
        (F.max(F.col("first") + F.col("events")) - F.sum("events")).cast("bigint").alias("missing"),
        F.coalesce(F.max("dropped"), F.lit(0)).alias("dropped"),
        F.coalesce(F.bool_or("ended"), F.lit(False)).alias("ended"),
    )


def _frame(like: DataFrame, lives: list[str]) -> DataFrame:
    return like.sparkSession.createDataFrame([(life,) for life in lives], "life STRING")
