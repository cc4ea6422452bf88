"""Receivers that Spark cannot normalise, named by the program from the bodies of their records."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.lost.frames import kept
from spark_jobs.lost.places import PLACE
from spark_jobs.rebuild.unkeyed import KeysOf, SealedRecord

MOST: Final = 10_000
"""Bodies that one run opens at most."""
_PLACED: Final = "topic STRING, topic_id STRING, partition INT, offset BIGINT"


def without_rows(found: DataFrame, rows: DataFrame, keys_of: KeysOf) -> DataFrame:
    """Returns the records of `found` with a receiver that has no row, as far as their bodies tell.

    `rows` has (message_id, delivery_key). Two forms of one receiver have one key, and so one row. A record
    whose body cannot be opened stays, and so do those past `MOST`.
    """
    found, some = kept(found)
    if not some:
        return found
    known: dict[str, set[str]] = defaultdict(set)
    for row in rows.join(found.select("message_id"), "message_id", "left_semi").toLocalIterator():
        known[row["message_id"]].add(row["delivery_key"])
    names = [*PLACE, "offset"]
    sealed = found.where(f.col("body").isNotNull()).select(*names, "message_id", "lane", "body")
    claimed = []
    for row in sealed.orderBy(*names).limit(MOST).toLocalIterator():
        keys = keys_of(SealedRecord(row["message_id"], row["lane"], bytes(row["body"])))
        if keys and known[row["message_id"]].issuperset(keys):
            claimed.append(tuple(row[name] for name in names))
    if not claimed:
        return found
    all_there = found.sparkSession.createDataFrame(claimed, _PLACED)
    return found.join(f.broadcast(all_there), names, "left_anti")
