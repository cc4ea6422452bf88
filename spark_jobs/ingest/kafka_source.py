"""Reads exactly the offsets of a plan, in one batch (docs/decisions/135-batches-of-exact-offsets.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.config import JobConfig
from spark_jobs.frames import frame_of
from spark_jobs.ingest.plan import Range

SLACK_MS: Final = 600_000
"""A producer's clock is believed if it is not further than this outside of what the offsets prove."""
_POLL_MS: Final = "60000"
"""Longest wait for a record that must be there."""
_BY_PRODUCER: Final = 0
"""`timestampType` of a time that the producer set."""
_RANGES: Final = (
    "topic STRING, topic_id STRING, partition INT, lane STRING, since BIGINT, at BIGINT"
)


def kafka_records(spark: SparkSession, config: JobConfig, ranges: Sequence[Range]) -> DataFrame:
    """Returns topic, topic_id, partition, offset, timestamp (epoch milliseconds), lane, value, headers of
    each record in the ranges, read committed. Reading fails if one of them is gone."""
    read = spark.read.format("kafka").options(**{"kafkaConsumer.pollTimeoutMs": _POLL_MS})
    frame = (
        read.options(**config.kafka)
        .options(
            assign=_json({one.topic: _partitions(ranges, one.topic) for one in ranges}),
            startingOffsets=_offsets(ranges, "first"),
            endingOffsets=_offsets(ranges, "next"),
            failOnDataLoss="true",
            includeHeaders="true",
        )
        .load()
    )
    places = frame_of(spark, _RANGES, [_place(one) for one in ranges])
    return (
        frame.join(F.broadcast(places), on=["topic", "partition"], how="inner")
        .withColumn("timestamp", _believed(F.col("timestamp"), F.col("timestampType")))
        .select(
            *("topic", "topic_id", "partition", "offset", "timestamp", "lane", "value", "headers")
        )
    )


def _believed(timestamp: Column, kind: Column) -> Column:
    """Returns the broker's time in milliseconds; a producer's only within what the offsets prove."""
    at = F.unix_millis(timestamp)
    within = (
        F.when((at < 0) | (at > F.col("at") + SLACK_MS), F.col("at"))
        .when(at < F.col("since") - SLACK_MS, F.col("since"))
        .otherwise(at)
    )
    return F.when(kind == _BY_PRODUCER, within).otherwise(at)


def _partitions(ranges: Sequence[Range], topic: str) -> list[int]:
    return [one.partition for one in ranges if one.topic == topic]


def _offsets(ranges: Sequence[Range], end: str) -> str:
    found: dict[str, dict[str, int]] = {}
    for one in ranges:
        found.setdefault(one.topic, {})[str(one.partition)] = getattr(one, end)
    return _json(found)


def _place(one: Range) -> dict[str, object]:
    return {
        "topic": one.topic,
        "topic_id": one.topic_id,
        "partition": one.partition,
        "lane": one.lane,
        "since": one.since,
        "at": one.at,
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
