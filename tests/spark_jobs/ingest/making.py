"""Kafka's records as frames, without Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

AT = 1_795_392_000_000
"""2026-11-23T00:00:00Z"""
RECORD = (
    "topic STRING, topic_id STRING, partition INT, offset BIGINT, timestamp BIGINT, lane STRING,"
    " value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def envelope(**changes: Any) -> dict[str, Any]:
    """A good one; a change to `...` leaves the field out."""
    good = {
        "v": 1,
        "id": "m-1",
        "biz_id": "order-1",
        "channel": "sms",
        "kind": "notice",
        "receivers": ["+8613800000001"],
        "template": {"id": "T1", "params": {"code": "4711"}},
        "created_at": AT,
        "ttl_ms": None,
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not ...}


def wire(value: Any) -> bytes:
    """Its bytes, as JSON unless it is bytes already."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def kafka_frame(
    spark: SparkSession,
    values: Sequence[Any],
    *,
    topic: str = "hongyan.dispatch.sms.notice",
    headers: Sequence[Mapping[str, bytes]] = (),
    timestamp: int = AT,
) -> DataFrame:
    """A frame as `kafka_records` gives it, with offsets from 0."""
    lane = topic.partition(".dispatch.")[2] or None
    rows = [
        (
            *(topic, "id", 3, offset, timestamp, lane),
            None if value is None else wire(value),
            [(k, v) for k, v in headers[offset].items()] if headers else None,
        )
        for offset, value in enumerate(values)
    ]
    schema = StructType.fromDDL(RECORD)
    assert isinstance(schema, StructType)
    return spark.createDataFrame(rows, schema)
