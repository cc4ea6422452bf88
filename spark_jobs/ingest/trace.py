"""Records of the trace topic → `events`, `trace_records` and `foreign`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.frames import day_of, header
from spark_jobs.tables import EVENT
from spark_jobs.warehouse import columns_of
from tracing.record_headers import DROPPED, END, FIRST, LIFE

_FIELDS: Final = [
    f for f in EVENT.replace("\n", " ").split(", ") if not f.strip().startswith("id ")
]
_EVENTS: Final = f"ARRAY<STRUCT<{', '.join(_FIELDS)}>>"
_STRICT: Final = {"mode": "PERMISSIVE", "allowSingleQuotes": "false"}
_END_OF_LIFE: Final = "1"
NOT_EVENTS, STRANGE_EVENTS, HALF_HEADERS = "not_events", "strange_events", "half_headers"


def parsed_trace(kafka: DataFrame) -> DataFrame:
    """Returns each record: its headers as columns, its events, and `problem`; null for a record of ours.

    A record with `strange_events` has elements that are no events: the others count.
    """
    headers = F.col("headers")
    life, first = header(LIFE, headers), header(FIRST, headers).try_cast("bigint")
    text = F.col("value").cast("string")
    whole = F.col("value").isNotNull() & F.is_valid_utf8(text)
    named = kafka.select(
        *("topic", "topic_id", "partition", "offset", "timestamp"),
        F.octet_length("value").alias("size"),
        F.when(first >= 0, life).alias("life"),
        F.when(life.isNotNull(), first).alias("first"),
        (life.isNotNull() & F.coalesce(first < 0, F.lit(True))).alias("half"),
        F.coalesce(header(DROPPED, headers).try_cast("bigint"), F.lit(0)).alias("dropped"),
        F.coalesce(header(END, headers) == _END_OF_LIFE, F.lit(False)).alias("ended"),
        F.when(whole, F.from_json(text, _EVENTS, _STRICT)).alias("found"),
    )
    return named.withColumn("problem", _problem())


def _problem() -> Column:
    return (
        F.when(F.col("found").isNull() & ~F.col("ended"), NOT_EVENTS)
        .when(F.exists("found", lambda one: ~_is_event(one)), STRANGE_EVENTS)
        .when(F.col("half"), HALF_HEADERS)
    )


def _is_event(one: Column) -> Column:
    return one.isNotNull() & one["at"].isNotNull() & one["stage"].isNotNull()


def events_of(parsed: DataFrame) -> DataFrame:
    """Returns rows of `events`. An event's id is `LIFE:NUMBER`, or its place without headers."""
    number = F.col("first") + F.col("index")
    place = F.concat_ws("/", "topic", "partition", "offset", F.col("index").cast("string"))
    exploded = parsed.where(F.col("found").isNotNull()).select(
        *("topic", "partition", "offset", "timestamp", "life", "first"),
        F.posexplode("found").alias("index", "event"),
    )
    return (
        exploded.where(_is_event(F.col("event")))
        .select(
            day_of(F.col("timestamp")).alias("day"),
            "timestamp",
            F.coalesce(F.concat(F.col("life"), F.lit(":"), number.cast("string")), place).alias(
                "id"
            ),
            "event.*",
        )
        .select(*columns_of("events"))
    )


def trace_records_of(parsed: DataFrame) -> DataFrame:
    """Returns rows of `trace_records`: what was not even an array of events has none."""
    ours = parsed.where(F.col("found").isNotNull() | F.col("ended"))
    return ours.select(
        day_of(F.col("timestamp")).alias("day"),
        *("topic_id", "partition", "offset", "timestamp", "life", "first"),
        F.coalesce(F.size("found"), F.lit(0)).alias("events"),
        "dropped",
        "ended",
    )


def foreign_of(parsed: DataFrame) -> DataFrame:
    """Returns rows of `foreign` for frames with `problem` and `size`."""
    return (
        parsed.where(F.col("problem").isNotNull())
        .withColumn("day", day_of(F.col("timestamp")))
        .select(*columns_of("foreign"))
    )
