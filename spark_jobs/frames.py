"""Small frames and columns that several jobs need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.envelope import CONTROL, MAX_RECEIVER

DAY_MS = 86_400_000
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def frame_of(spark: SparkSession, ddl: str, rows: Sequence[Any]) -> DataFrame:
    """Returns rows of the driver as a frame with these columns; times as numbers, dates as ISO texts. Plans
    show the rows: for secrets take `spark_jobs.jvm.one_row`."""
    text = msgspec.json.encode(list(rows)).decode()
    array = F.from_json(F.lit(text), f"ARRAY<STRUCT<{ddl.strip()}>>")
    return spark.range(1, numPartitions=1).select(F.inline(array))


def day_of(timestamp: Column) -> Column:
    """Returns the UTC date of epoch milliseconds."""
    return F.date_from_unix_date(F.floor(timestamp / DAY_MS).cast("int"))


def kept(text: Column) -> Column:
    """Returns the text as PostgreSQL and its indexes take it: without control characters, not too long."""
    return F.regexp_replace(F.left(text, F.lit(MAX_RECEIVER)), CONTROL, _REPLACEMENT)


def header(name: str, headers: Column) -> Column:
    """Returns the text of the last Kafka header of that name; null without one."""
    found = F.filter(headers, lambda one: one["key"] == name)
    return F.try_element_at(F.transform(found, lambda one: one["value"].cast("string")), F.lit(-1))
