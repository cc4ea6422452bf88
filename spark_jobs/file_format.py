"""How the files of a table are written, where Spark's way costs more than it gives.

A dictionary of values that hardly repeat is made, found too large, and written plainly after all. Parquet's
statistics of a timeline's events are asked by nobody: no reader can pass over a part of an array. Delta's
statistics are kept for the columns by which readers pass over files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from spark_jobs.tables import EVENT

_EVENT: Final = "timeline.list.element"
"""Parquet's path of an event."""
_EVENT_FIELDS: Final = [field.split()[0] for field in EVENT.replace("\n", " ").split(",")]
_TIMES: Final = ("created_at", "received_at", "claimed_at", "started_at", "answered_at")
_ROW_TIMES: Final = ("accepted_at", "appended_at", "ended_at", "receipt_at", "first_at", "last_at")
_UNLIKE: Final = (
    "delivery_key",
    "message_id",
    "biz_id",
    "receiver_hash",
    "provider_id",
    "origin",
    "traceparent",
    *_TIMES,
)
"""Columns of rows and events whose values differ from delivery to delivery."""
_NO_DICTIONARY: Final = (
    *_UNLIKE,
    *_ROW_TIMES,
    "origins.list.element",
    *[f"{_EVENT}.{name}" for name in ("id", "at", *_UNLIKE)],
)
_SKIPPED_BY: Final = (
    "message_id",
    "biz_id",
    "lane",
    "template",
    "created_at",
    "appended_at",
    "first_at",
    "last_at",
    "attempts",
    "acceptances",
)
"""Columns of `deliveries` with statistics in Delta's log."""

PROPERTIES: Final[Mapping[str, Mapping[str, str]]] = {
    "deliveries": {"delta.dataSkippingStatsColumns": ",".join(_SKIPPED_BY)},
}
"""Table → properties of Delta's. A table that was made without them keeps its own."""
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "deliveries": {
        "parquet.size.statistics.enabled": "false",
        **{f"parquet.enable.dictionary#{path}": "false" for path in _NO_DICTIONARY},
        **{f"parquet.column.statistics.enabled#{_EVENT}.{name}": "false" for name in _EVENT_FIELDS},
    },
}
"""Table → settings of Parquet's writer; `#` names one column."""


@contextmanager
def written_as(spark: SparkSession, table: str) -> Iterator[None]:
    """Lets the session write files of this table."""
    with changed(spark, _SETTINGS.get(table, {})):
        yield


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of the session, and puts back what they were."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
