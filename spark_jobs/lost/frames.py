"""Frames that Spark has computed, or knows to be empty.

A run joins a dozen frames, and most are empty most of the time. Spark drops a branch of the plan that it
knows to be empty, and so the run's time goes with what there is.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


class Kept(NamedTuple):
    """A frame in Spark's cache, with its size."""

    frame: DataFrame
    rows: int


def empty(spark: SparkSession, schema: str | StructType) -> DataFrame:
    """Returns a frame of this schema that the optimizer knows to be empty."""
    return spark.createDataFrame([], schema).where("false")


def kept(frame: DataFrame) -> Kept:
    """Computes the frame and keeps it, until `unpersist`."""
    cached = frame.persist()
    rows = cached.count()
    if rows:
        return Kept(cached, rows)
    cached.unpersist()
    return Kept(empty(frame.sparkSession, frame.schema), 0)
