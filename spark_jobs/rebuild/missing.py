"""Stages that must have been and are not there, each as `STAGE:CAUSE`.

    appended:hole      an event names the record's place, and the record is not in the warehouse
    claimed:unseen     the record is there, and no event: nobody read it, or its events are lost
    claimed:policy     as before, and the lane's policy leaves events out
    claimed:trace      it was called, and no event has its claim
    settled:trace      an attempt ended, and no event says how
    settled:policy     the same of the last attempt in a lane whose policy leaves such an event out

A dead letter must have no stage. Causes are of the row alone, so that a row folded in parts is the row
folded at once. How many events a life lost is in `trace_gaps`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.rebuild import timeline


class TraceLevels(NamedTuple):
    """Lanes whose policy leaves events out."""

    trouble: Collection[str] = ()
    """No event of a delivery that was sent at once."""
    none: Collection[str] = ()


def missing(levels: TraceLevels, moved: Column, begun: Column, ended: Column) -> Column:
    """Returns the column. `moved`: an event of a worker or a recovery is there; `begun`: one that needs no
    claim before it; `ended`: a receipt or a recall is there."""
    none = _among(levels.none)
    quiet = none | _among(levels.trouble)
    alive = F.col("dead_letter").isNull()
    record = F.col("appended_at").isNotNull()
    earlier = F.greatest(F.col("attempts") - 1, F.lit(0))
    lacks_earlier = _ends_seen(earlier) < earlier
    lacks_last = ended & (_ends_seen(F.col("attempts")) < F.col("attempts"))
    unread = ~record & F.col("origin").isNotNull()
    unseen = ~moved & record & alive
    unclaimed = moved & (F.col("attempts") > 0) & F.col("claimed_at").isNull() & ~begun
    unsettled = lacks_earlier | lacks_last
    found = F.array(
        F.when(unread, F.lit("appended:hole")),
        F.when(unseen, _named("claimed", quiet, "unseen")),
        F.when(unclaimed, _named("claimed", none | (quiet & ended), "trace")),
        F.when(unsettled, _named("settled", none | (quiet & ~lacks_earlier), "trace")),
    )
    nothing = F.array().cast("array<string>")
    return F.when(unread | unseen | unclaimed | unsettled, F.array_compact(found)).otherwise(
        nothing
    )


def _named(stage: str, left_out: Column, cause: str) -> Column:
    return F.when(left_out, F.lit(f"{stage}:policy")).otherwise(F.lit(f"{stage}:{cause}"))


def _among(lanes: Collection[str]) -> Column:
    if not lanes:
        return F.lit(False)
    return F.coalesce(F.col("lane").isin(sorted(lanes)), F.lit(False))


def _ends_seen(upto: Column) -> Column:
    """Returns how many attempts, from 1 to `upto`, have an end in the timeline."""
    ends = F.filter(
        "timeline",
        lambda e: timeline.ends_attempt(e) & timeline.attempt(e).between(F.lit(1), upto),
    )
    several = F.size(F.array_distinct(F.transform(ends, timeline.attempt)))
    return (
        F.when(upto <= 0, 0)
        .when(F.col("attempts") <= 1, F.col("attempt_ended").cast("int"))
        .otherwise(several)
    )
