"""Receivers of records that only their bodies name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.rebuild.unkeyed import SealedRecord

TOPIC, ID = "hongyan.dispatch.sms.notice", "id-1"


def keys_of(record: SealedRecord) -> list[str]:
    """The body lists the keys."""
    return record.body.decode().split()


@pytest.mark.parametrize(
    ("body", "rows", "left"),
    [
        (b"k1 k1", ["k1"], []),
        (b"k1 k2", ["k1"], [5]),
        (b"", ["k1"], [5]),
        (None, ["k1"], [5]),
        (b"k1 k1", [], [5]),
    ],
    ids=["two forms", "one is missing", "not opened", "no body", "no row"],
)
def test_a_receiver_in_two_forms_has_one_row(
    spark: SparkSession, body: bytes | None, rows: list[str], left: list[int]
) -> None:
    from spark_jobs.lost.causes import unnamed
    from spark_jobs.lost.receivers import without_rows

    place: dict[str, Any] = {"topic": TOPIC, "topic_id": ID, "partition": 0, "offset": 5}
    names = "topic STRING, topic_id STRING, partition INT, offset BIGINT"
    forms = [("k1", "+86***", None), (None, "***", None)]
    records = spark.createDataFrame(
        [(*place.values(), "m5", "sms.notice", forms, body)],
        f"{names}, message_id STRING, lane STRING, deliveries ARRAY<STRUCT<delivery_key: STRING,"
        " receiver: STRING, receiver_hash: STRING>>, body BINARY",
    )
    deliveries = spark.createDataFrame(
        [(*place.values(), "passed", 1)], f"{names}, cause STRING, expires_at BIGINT"
    )
    of_ledger = spark.createDataFrame(
        [*[("m5", key) for key in rows], ("m6", "k2")], "message_id STRING, delivery_key STRING"
    )
    found = without_rows(unnamed(deliveries, records, of_ledger), of_ledger, keys_of)
    assert [row["offset"] for row in found.collect()] == left
