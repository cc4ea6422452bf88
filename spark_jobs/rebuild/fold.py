"""Parts → one row per delivery, in one shuffle.

Every column is made of a set of events, a set of records, a least day and a least dead letter. Sets, least
and greatest values do not depend on order, grouping or repetition: so the fold is associative, commutative
and idempotent, and a row's own parts (`parts.row_parts`) fold to that row again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from message.states import SETTLED
from spark_jobs.file_format import changed
from spark_jobs.rebuild import doubles, timeline
from spark_jobs.rebuild.latencies import latencies
from spark_jobs.rebuild.missing import TraceLevels, missing
from spark_jobs.tables import DELIVERIES
from tracing.events import Stage

_PLANNING: Final = {
    # The parts arrive sorted by key: one pass over them instead of a partial and a final aggregation.
    "spark.sql.execution.replaceHashWithSortAgg": "true",
    # Percentiles of some thousand groups stay in memory; 128 of them would sort every row.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "8192",
}
_LAST: Final = ("account", "policy_version", "provider_id")
"""Facts of which the last event's counts that has one."""
_OF_RECORD: Final = ("biz_id", "lane", "template", "traceparent", "created_at")
"""Facts that the record decides where it is known, null too; else the greatest of the events, should they
differ."""


@contextmanager
def one_pass(spark: SparkSession) -> Iterator[None]:
    """Lets the session plan the fold as one pass over sorted parts."""
    with changed(spark, _PLANNING):
        yield


def fold(parts: DataFrame, levels: TraceLevels = TraceLevels()) -> DataFrame:  # noqa: B008 - immutable
    """Returns one row of `deliveries` per delivery key. The caller runs it within `one_pass`."""
    together = parts.repartition("delivery_key").sortWithinPartitions("delivery_key")
    folded = together.groupBy("delivery_key").agg(*_aggregates())
    return _rows(folded.withColumn("timeline", timeline.in_order(F.col("events"))), levels)


def _aggregates() -> list[Column]:
    e = F.col("event")
    stage = e["stage"]
    place = F.coalesce("record.origin", e["origin"])
    least, greatest = F.array_min("origins"), F.array_max("origins")
    marks = [e[name] for name in ("claimed_at", "started_at", "answered_at")]
    # One struct for both: an expression that two aggregates share is evaluated once.
    ruling = F.struct(*timeline.verdict_order(e), e["state"], e["reason"], e["code"], *marks)
    verdict = F.when(timeline.gives_state(e), ruling)
    places = F.coalesce("origins", F.when(F.col("record").isNotNull(), F.array("record.origin")))
    return [
        F.min("day").alias("day"),
        F.collect_list(e).alias("events"),
        F.min("record").alias("record"),
        F.min(F.coalesce(least, place)).alias("least_origin"),
        F.max(F.coalesce(greatest, place)).alias("greatest_origin"),
        F.collect_list(places).alias("record_origins"),
        F.min("dead_letter").alias("dead_letter"),
        F.max(verdict).alias("verdict"),
        F.max(F.when(verdict["phase"] == timeline.END, verdict)).alias("end"),
        F.min(e["at"]).alias("first_event_at"),
        F.max(e["at"]).alias("last_event_at"),
        F.min(_at(e, Stage.ACCEPTED)).alias("accepted_at"),
        F.min(_at(e, Stage.RECEIPT)).alias("receipt_at"),
        F.min(e["received_at"]).alias("received_at"),
        F.min(e["claimed_at"]).alias("claimed_at"),
        F.min(e["started_at"]).alias("started_at"),
        F.max(e["answered_at"]).alias("answered_at"),
        F.max(timeline.attempt(e)).alias("attempts"),
        F.count(e["started_at"]).alias("calls_read"),
        F.count_if(doubles.accepted(e)).alias("acceptances_read"),
        F.count(_at(e, Stage.DUPLICATE)).alias("duplicates_read"),
        F.count(_at(e, Stage.RECEIPT)).alias("receipts_read"),
        F.bool_or(timeline.ends_attempt(e) & (timeline.attempt(e) > 0)).alias("attempt_ended"),
        F.bool_or(timeline.follows_end(e)).alias("after_end"),
        F.bool_or(timeline.gives_state(e) | timeline.ends_attempt(e)).alias("moved"),
        F.bool_or(timeline.is_in(stage, (Stage.HELD, Stage.BEHIND, Stage.FOUND))).alias("begun"),
    ]


def _at(event: Column, stage: Stage) -> Column:
    return F.when(event["stage"] == stage.value, event["at"])


def _rows(folded: DataFrame, levels: TraceLevels) -> DataFrame:
    known = folded.select(
        *[name for name in folded.columns if name != "attempts"],
        F.coalesce("attempts", F.lit(0)).alias("attempts"),
        F.col("record.appended_at").alias("appended_at"),
        F.col("record.resend_of").alias("resend_of"),
        F.col("end.at").alias("ended_at"),
        F.coalesce("record.message_id", _of_events("message_id")).alias("message_id"),
        *[_of_record(name).alias(name) for name in _OF_RECORD],
        # Record and events agree; a receiver without a key of Spark's own has its events' alone.
        *[
            F.coalesce(f"record.{name}", _of_events(name)).alias(name)
            for name in ("receiver", "receiver_hash")
        ],
        *[_last(name).alias(name) for name in _LAST],
        _origins().alias("origins"),
    )
    facts = known.select(
        "*", F.coalesce("record.origin", F.get("origins", F.lit(0))).alias("origin")
    )
    derived = {
        **latencies(F.col("end")),
        "account": F.coalesce("account", "record.account"),
        "first_at": F.least("first_event_at", "appended_at"),
        "last_at": F.greatest("last_event_at", "appended_at"),
        "calls": _once("calls_read", lambda e: e["started_at"].isNotNull()),
        "acceptances": F.when(F.col("acceptances_read") <= 1, F.col("acceptances_read")).otherwise(
            doubles.claims_in(F.col("timeline"))
        ),
        "duplicates": _once("duplicates_read", lambda e: e["stage"] == Stage.DUPLICATE.value),
        "receipts": _once("receipts_read", lambda e: e["stage"] == Stage.RECEIPT.value),
        "state": F.col("verdict.state"),
        "reason": F.col("verdict.reason"),
        "code": F.col("verdict.code"),
        "settled": F.coalesce(
            F.col("verdict.state").isin(sorted(state.value for state in SETTLED)), F.lit(False)
        ),
        "missing": missing(levels, _flag("moved"), _flag("begun"), _flag("after_end")),
    }
    schema = StructType.fromDDL(DELIVERIES)
    assert isinstance(schema, StructType)
    return facts.select(
        *[
            derived.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
            for field in schema
        ]
    )


def _origins() -> Column:
    """Returns the places of all records and events; most deliveries have one."""
    several = F.concat(F.flatten("record_origins"), F.array_compact(F.col("timeline.origin")))
    one = F.col("least_origin") == F.col("greatest_origin")
    return F.when(one, F.array("least_origin")).otherwise(F.array_sort(F.array_distinct(several)))


def _of_record(name: str) -> Column:
    return F.when(F.col("record").isNotNull(), F.col(f"record.{name}")).otherwise(_of_events(name))


def _of_events(name: str) -> Column:
    return F.array_max(F.col(f"timeline.{name}"))


def _last(name: str) -> Column:
    """Returns the last value in the timeline."""
    values, size = F.col(f"timeline.{name}"), F.size("timeline")
    found = F.array_compact(values)
    # Most timelines end with it; only for the others is an array made.
    return F.coalesce(
        F.get(values, size - 1), F.get(values, size - 2), F.get(found, F.size(found) - 1)
    )


def _flag(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(False))


def _once(read: str, wanted: Callable[[Column], Column]) -> Column:
    """Returns how many different events are wanted, `read` of which arrived."""
    exact = F.size(F.filter("timeline", wanted))
    return F.when(F.col(read) <= 1, F.col(read)).otherwise(exact)
