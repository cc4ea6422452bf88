"""All that is known of deliveries in one form, a row per part.

A part has at most one event and at most one record. `origins` is set where a row was folded from several
records. Every shuffled byte is one of these columns: nothing is computed before the shuffle that can be
computed after it.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.tables import EVENT

RECORD: Final = """
appended_at BIGINT, origin STRING, message_id STRING, biz_id STRING, lane STRING, template STRING,
receiver STRING, receiver_hash STRING, account STRING, resend_of STRING, traceparent STRING,
created_at BIGINT"""
"""Facts of a record. Of several records the first appended one counts, by `appended_at`, then `origin`."""

PART: Final = f"""
delivery_key STRING, day DATE, event STRUCT<{EVENT.strip()}>, record STRUCT<{RECORD.strip()}>,
origins ARRAY<STRING>, dead_letter STRING"""
_EVENT_FIELDS: Final = [field.split()[0] for field in EVENT.replace("\n", " ").split(",")]
_RECORD_FIELDS: Final = [field.split()[0] for field in RECORD.replace("\n", " ").split(",")]
_EVENT_TYPE: Final = f"struct<{EVENT.strip()}>"
_RECORD_TYPE: Final = f"struct<{RECORD.strip()}>"


def event_parts(events: DataFrame) -> DataFrame:
    """Returns a part per event of a delivery; an event of a poison record has none."""
    event = F.struct(*[F.col(name) for name in _EVENT_FIELDS])
    keyed = F.col("delivery_key").isNotNull() & (F.col("delivery_key") != "")
    return events.where(keyed).select(*_part(F.col("delivery_key"), event=event))


def record_parts(records: DataFrame) -> DataFrame:
    """Returns a part per receiver with a key of each envelope."""
    each = records.where(F.col("problem").isNull()).withColumn("to", F.explode("deliveries"))
    return each.where(F.col("to.delivery_key").isNotNull()).select(
        *_part(
            F.col("to.delivery_key"),
            record=_record(F.col("to.receiver"), F.col("to.receiver_hash")),
        )
    )


def letter_parts(letters: DataFrame) -> DataFrame:
    """Returns a part per delivery key of `letters` (delivery_key, day, reason)."""
    return letters.select(*_part(F.col("delivery_key"), dead_letter=F.col("reason")))


def row_parts(rows: DataFrame) -> DataFrame:
    """Returns the parts of which rows of `deliveries` were folded."""
    each = rows.select("*", F.posexplode_outer("timeline").alias("place", "event"))
    first = F.coalesce(F.col("place"), F.lit(0)) == 0
    # A row without a record has the facts of its events alone: they are in its timeline.
    record = F.when(
        first & F.col("appended_at").isNotNull(),
        F.struct(*[F.col(name) for name in _RECORD_FIELDS]),
    )
    return each.select(
        *_part(
            F.col("delivery_key"),
            event=F.col("event"),
            record=record,
            origins=F.when(first, F.col("origins")),
            dead_letter=F.when(first, F.col("dead_letter")),
        )
    )


def origin() -> Column:
    """Returns a record's place, as events name it."""
    return F.concat_ws("/", "topic", F.col("partition"), F.col("offset"))


def union(frames: list[DataFrame]) -> DataFrame:
    """Returns the parts of all frames."""
    return reduce(DataFrame.unionByName, frames)


def _record(receiver: Column, receiver_hash: Column) -> Column:
    renamed = {
        "appended_at": F.col("timestamp"),
        # Nullable like its column: a cast would make every struct anew.
        "origin": F.nullif(origin(), F.lit("")),
        "receiver": receiver,
        "receiver_hash": receiver_hash,
    }
    return F.struct(*[renamed.get(name, F.col(name)).alias(name) for name in _RECORD_FIELDS])


def _part(
    key: Column,
    *,
    event: Column | None = None,
    record: Column | None = None,
    origins: Column | None = None,
    dead_letter: Column | None = None,
) -> list[Column]:
    def typed(value: Column | None, kind: str, name: str) -> Column:
        return (F.lit(None) if value is None else value).cast(kind).alias(name)

    return [
        key.alias("delivery_key"),
        F.col("day"),
        typed(event, _EVENT_TYPE, "event"),
        typed(record, _RECORD_TYPE, "record"),
        typed(origins, "array<string>", "origins"),
        typed(dead_letter, "string", "dead_letter"),
    ]
