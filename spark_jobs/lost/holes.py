"""LossCause `hole`: records that Kafka removed before the ingest read them.

Most of a hole was usually sent: a job that was away for longer than Kafka keeps a topic leaves one. The
ledger's rows, the trace and the dead letters name the records that a worker has read. A worker reads in
order and Kafka removes from the start, so what was never read lies after the last of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from message.loss import LossCause
from spark_jobs.lost.candidates import as_candidates
from spark_jobs.lost.claimed import has_key
from tracing.events import Stage

_PLACE = ["topic", "partition"]
_NO_END: Final = 2**63 - 1


def of_lanes(holes: DataFrame, lanes: DataFrame, after_run: int) -> DataFrame:
    """Returns the holes that ingests after that run found in topics of lanes that always had a ledger.
    `next` is null for a log that is gone."""
    kept = lanes.where(f.col("best_effort_until").isNull()).select("lane")
    names = ("topic", "topic_id", "lane", "partition", "first", "next", "after", "before", "at")
    some = f.col("next").isNull() | (f.col("next") > f.col("first"))
    new = holes.where((f.col("run") > after_run) & some)
    return new.join(f.broadcast(kept), "lane", "left_semi").select(*names)


def in_holes(named: DataFrame, holes: DataFrame) -> DataFrame:
    """Returns the rows of `named` (with an origin) that lie in a hole: adds topic, partition, offset and
    the hole's first."""
    parts = f.split("origin", "/")
    placed = named.where(f.col("origin").rlike("^[^/]+/[0-9]+/[0-9]+$")).withColumns(
        {
            "topic": parts[0],
            "partition": parts[1].try_cast("int"),
            "offset": parts[2].try_cast("bigint"),
        }
    )
    bounds = f.broadcast(holes.select(*_PLACE, "first", "next"))
    inside = (f.col("offset") >= f.col("first")) & (f.col("offset") < f.col("next"))
    return placed.join(bounds, _PLACE, "inner").where(inside).drop("next")


def accepted(events: DataFrame, letters: DataFrame, holes: DataFrame) -> DataFrame:
    """Returns the deliveries in holes that their producer recorded as accepted by Kafka. A worker has read
    a record that is a dead letter."""
    return in_holes(_accepted_alive(events, letters), holes.where(f.col("next").isNotNull()))


def accepted_by_gone(
    events: DataFrame, letters: DataFrame, holes: DataFrame, records: DataFrame
) -> DataFrame:
    """Returns the same of logs that are gone: their topic was deleted or made anew, and nobody knows their
    end. What came under its name since then is among the `records`."""
    ends = f.coalesce("next", f.lit(_NO_END)).alias("next")
    gone = holes.where(f.col("next").isNull()).select(*_PLACE, "first", ends, "before")
    before = gone.groupBy(*_PLACE).agg(f.max("before").alias("gone_at"))
    found = in_holes(_accepted_alive(events, letters), gone).join(f.broadcast(before), _PLACE)
    there = records.select(f.explode("deliveries.delivery_key").alias("delivery_key"))
    known = found.where(f.col("at") <= f.col("gone_at")).drop("gone_at")
    return known.join(there, "delivery_key", "left_anti").select(*found.drop("gone_at").columns)


def _accepted_alive(events: DataFrame, letters: DataFrame) -> DataFrame:
    told = events.where((f.col("stage") == Stage.ACCEPTED) & has_key())
    return told.join(letters.select("origin"), "origin", "left_anti")


def read_places(
    events: DataFrame, letters: DataFrame, rows: DataFrame, holes: DataFrame
) -> DataFrame:
    """Returns, by topic, partition and hole, `read_to`: the last offset that a worker has read.

    `rows` are the ledger's (topic, partition, offset), greatest offsets below the holes' ends.
    """
    without = (Stage.ACCEPTED, Stage.REMOVED, Stage.RECALL_ASKED)
    origins = events.where(~f.col("stage").isin(*without) & f.col("origin").isNotNull())
    letters_known = in_holes(origins.select("origin").union(letters.select("origin")), holes)
    bounds = f.broadcast(holes.select(*_PLACE, "first", "next"))
    known = rows.join(bounds, _PLACE, "inner").where(
        (f.col("offset") >= f.col("first")) & (f.col("offset") < f.col("next"))
    )
    names = (*_PLACE, "first", "offset")
    both = letters_known.select(*names).union(known.select(*names))
    return both.groupBy(*_PLACE, "first").agg(f.max("offset").alias("read_to"))


def hole_candidates(holes: DataFrame, read: DataFrame, named: DataFrame) -> DataFrame:
    """Returns one candidate per hole whose end no worker has read, unless each of its offsets is `named`
    (by `accepted`): then each delivery is a candidate by itself."""
    begin = f.greatest("first", f.coalesce(f.col("read_to") + 1, f.col("first")))
    unread = holes.join(f.broadcast(read), [*_PLACE, "first"], "left").withColumn("begin", begin)
    unread = unread.where(f.col("begin") < f.col("next"))
    offsets = named.select(*_PLACE, "first", "offset").distinct()
    counted = (
        unread.select(*_PLACE, "first", "begin")
        .join(offsets, [*_PLACE, "first"], "inner")
        .where(f.col("offset") >= f.col("begin"))
        .groupBy(*_PLACE, "first")
        .agg(f.count("*").alias("named"))
    )
    found = unread.join(counted, [*_PLACE, "first"], "left").fillna(0, ["named"])
    found = found.withColumn("size", f.col("next") - f.col("begin"))
    found = found.where(f.col("named") < f.col("size")).withColumn("subject", _range())
    detail = f.concat(
        "size",
        f.lit(" offsets were gone before anything read them; "),
        "named",
        f.lit(" are named"),
    )
    found = found.withColumns({"origin": f.concat_ws("/", *_PLACE, "begin")})
    return as_candidates(found, cause=LossCause.HOLE, detail=detail, subject="subject")


def named_candidates(named: DataFrame) -> DataFrame:
    """Returns candidates for accepted deliveries in holes whose keys the ledger does not have."""
    detail = f.lit("its producer had it accepted by Kafka, and it was gone before anything read it")
    return as_candidates(named, cause=LossCause.HOLE, detail=detail)


def _range() -> Column:
    last = f.col("next") - 1
    return f.concat_ws("/", *_PLACE, f.concat_ws("-", f.col("begin"), last))
