"""Records of the trace topic → `events`, `trace_records` and `foreign`.

Anybody may write into the topic. A number that no sum takes, or a text that no database takes, must not end
each later run: it is left out, or cut off.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.envelope import MAX_RECEIVER, MAX_TIME_MS
from spark_jobs.frames import day_of, header, kept
from spark_jobs.tables import EVENT
from spark_jobs.warehouse import columns_of
from tracing.record_headers import DROPPED, END, FIRST, LIFE

_FIELDS: Final = [
    f for f in EVENT.replace("\n", " ").split(", ") if not f.strip().startswith("id ")
]
_NAMES: Final = [field.split()[0] for field in _FIELDS]
_EVENTS: Final = f"ARRAY<STRUCT<{', '.join(_FIELDS)}>>"
_STRICT: Final = {"mode": "PERMISSIVE", "allowSingleQuotes": "false"}
_END_OF_LIFE: Final = "1"
_MOST: Final = 2**53
"""Greatest number of an event that a header may name."""
_NUL: Final = "\\u0000"
_ESCAPED_NUL: Final = r"(?<!\\)((?:\\\\)*)\\u0000"
"""The escape, after an even number of backslashes; JSON has no other form of it."""
_KEPT: Final = {
    "delivery_key": 64,
    "lane": 64,
    "template": MAX_RECEIVER,
    "account": MAX_RECEIVER,
}
"""Characters of texts that are keys of the small tables."""
_TIMES: Final = ("created_at", "received_at", "claimed_at", "started_at", "answered_at")
NOT_EVENTS, STRANGE_EVENTS, HALF_HEADERS = "not_events", "strange_events", "half_headers"


def parsed_trace(kafka: DataFrame) -> DataFrame:
    """Returns each record: its headers as columns, its events, and `problem`; null for a record of ours.

    A record with `strange_events` has elements that are no events: the others count.
    """
    headers = F.col("headers")
    life, first = header(LIFE, headers), header(FIRST, headers).try_cast("bigint")
    numbered = F.coalesce(first.between(0, _MOST), F.lit(False))
    dropped = F.coalesce(header(DROPPED, headers).try_cast("bigint"), F.lit(0))
    text = F.col("value").cast("string")
    whole = F.col("value").isNotNull() & F.is_valid_utf8(text)
    named = kafka.select(
        *("topic", "topic_id", "partition", "offset", "timestamp"),
        F.octet_length("value").alias("size"),
        F.when(numbered, kept(life)).alias("life"),
        F.when(life.isNotNull() & numbered, first).alias("first"),
        (life.isNotNull() & ~numbered).alias("half"),
        F.greatest(F.lit(0), F.least(F.lit(_MOST), dropped)).alias("dropped"),
        F.coalesce(header(END, headers) == _END_OF_LIFE, F.lit(False)).alias("ended"),
        F.when(whole, F.from_json(_without_nul(text), _EVENTS, _STRICT)).alias("found"),
    )
    return named.withColumn("problem", _problem())


def _without_nul(text: Column) -> Column:
    """Returns the JSON text with replacement characters in place of NUL, which PostgreSQL takes nowhere."""
    mended = F.regexp_replace(text, _ESCAPED_NUL, "$1\N{REPLACEMENT CHARACTER}")
    return F.when(F.contains(text, F.lit(_NUL)), mended).otherwise(text)


def _problem() -> Column:
    return (
        F.when(F.col("found").isNull() & ~F.col("ended"), NOT_EVENTS)
        .when(F.exists("found", lambda one: ~_is_event(one)), STRANGE_EVENTS)
        .when(F.col("half"), HALF_HEADERS)
    )


def _is_event(one: Column) -> Column:
    within = F.coalesce(one["at"].between(0, MAX_TIME_MS), F.lit(False))
    return one.isNotNull() & within & one["stage"].isNotNull()


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
            *[_field(name) for name in _NAMES],
        )
        .select(*columns_of("events"))
    )


def _field(name: str) -> Column:
    value = F.col("event")[name]
    if name in _KEPT:
        value = F.left(value, F.lit(_KEPT[name]))
    elif name in _TIMES:
        value = F.when(value.between(0, MAX_TIME_MS), value)
    return value.alias(name)


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
