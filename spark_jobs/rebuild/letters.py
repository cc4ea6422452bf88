"""Dead letters by delivery key: a letter names its record's place, the record its deliveries.

Letters are few beside records, and most of theirs are no envelope and have no delivery. They reach the
records by broadcast, so that no record is shuffled for them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.rebuild.parts import origin

BROADCAST: Final = 1_000_000
"""Letters that are sent to every executor at most; more are joined by a shuffle."""


def keyed(letters: DataFrame, records: DataFrame) -> DataFrame:
    """Returns (delivery_key, day, reason) of each letter and each of its record's deliveries."""
    bounds = letters.select(
        F.count("*"),
        F.min("day"),
        F.collect_set(_topic()),
        F.min(_offset()),
        F.max(_offset()),
    ).first()
    assert bounds is not None
    count, _day, topics, least, most = bounds
    wanted = letters.select("day", "reason", F.col("origin").alias("place"))
    # Spark skips the files of other offsets by their statistics.
    near = records.where(
        F.col("topic").isin(topics or [""]) & F.col("offset").between(least or 0, most or 0)
    )
    placed = near.where(F.col("problem").isNull()).select("deliveries", origin().alias("place"))
    if count <= BROADCAST:
        wanted = F.broadcast(wanted)
    found = placed.join(wanted, on="place", how="inner")
    each = found.select("day", "reason", F.explode("deliveries").alias("to"))
    return each.where(F.col("to.delivery_key").isNotNull()).select(
        F.col("to.delivery_key").alias("delivery_key"), "day", "reason"
    )


def _topic() -> Column:
    return F.split("origin", "/").getItem(0)


def _offset() -> Column:
    return F.split("origin", "/").getItem(2).try_cast("bigint")
