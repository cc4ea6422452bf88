"""Delivery keys of receivers that Spark cannot normalise (message/keys.py).

Events of the same record have the keys. For a record without enough events the program opens the body and
asks libphonenumber on the driver, for `MOST` records a run. A key that neither gives is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.rebuild.parts import origin

MOST: Final = 10_000
"""Bodies that one run opens at most."""
_BROADCAST: Final = 200_000
_KEYED: Final = "place STRING, keys ARRAY<STRING>"


class SealedRecord(NamedTuple):
    """One record whose receivers are to be named."""

    message_id: str
    lane: str
    body: bytes


KeysOf = Callable[[SealedRecord], Sequence[str]]
"""Returns the delivery keys of a record's receivers; none if its body cannot be opened."""


class Keyed(NamedTuple):
    """Records that got their keys, and the number of the others."""

    records: DataFrame | None
    """Records whose `deliveries` are those found, with their keys; None without any."""
    by_events: int = 0
    by_body: int = 0
    unknown: int = 0
    """Receivers that stay without a key."""


def keyed(records: DataFrame, events: DataFrame, keys_of: KeysOf | None) -> Keyed:
    """Returns the records whose receivers without a key got one."""
    bare = _bare(records)
    count = bare.count()
    if not count:
        return Keyed(None)
    by_events = _by_events(bare, events, count).persist()
    try:
        rows = by_events.where(F.size("found") < F.col("wanted"))
        opened = [] if keys_of is None else _opened(rows, keys_of)
        frames = [by_events.select("place", F.col("found").alias("keys"))]
        if opened:
            frames.append(records.sparkSession.createDataFrame(opened, _KEYED))
        keys = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        every = keys.groupBy("place").agg(
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("keys")))).alias("keys")
        )
        sums = by_events.agg(
            F.sum("wanted"), F.sum(F.least(F.size("found"), F.col("wanted")))
        ).first()
        assert sums is not None
        both = every.join(by_events.select("place", "wanted"), on="place", how="inner")
        named = both.agg(F.sum(F.least(F.size("keys"), F.col("wanted")))).first()
        assert named is not None
        found = _with_keys(bare, every, count)
        return Keyed(found, sums[1], named[0] - sums[1], sums[0] - named[0])
    finally:
        by_events.unpersist()


def _bare(records: DataFrame) -> DataFrame:
    lacks = F.exists("deliveries", lambda to: to["delivery_key"].isNull())
    return records.where(F.col("problem").isNull() & lacks).withColumn("place", origin())


def _by_events(bare: DataFrame, events: DataFrame, count: int) -> DataFrame:
    """Returns (place, message_id, lane, body, known, wanted, found) of each record."""
    each = bare.select(
        "place",
        "message_id",
        "lane",
        "body",
        F.filter("deliveries.delivery_key", lambda key: key.isNotNull()).alias("known"),
        F.size(F.filter("deliveries", lambda to: to["delivery_key"].isNull())).alias("wanted"),
    ).dropDuplicates(["place"])
    seen = events.where(F.col("origin").isNotNull() & (F.col("delivery_key") != ""))
    # A topic that was made anew has other messages at these places.
    places = each.select("place", F.col("message_id").alias("named"))
    near = seen.join(
        F.broadcast(places) if count <= _BROADCAST else places,
        on=(F.col("origin") == F.col("place")) & (F.col("message_id") == F.col("named")),
        how="left_semi",
    )
    keys = near.groupBy(F.col("origin").alias("place")).agg(
        F.collect_set("delivery_key").alias("keys")
    )
    return each.join(keys, on="place", how="left").select(
        *each.columns,
        F.array_except(F.coalesce("keys", F.array().cast("array<string>")), "known").alias("found"),
    )


def _opened(rows: DataFrame, keys_of: KeysOf) -> list[tuple[str, list[str]]]:
    sealed = rows.where(F.col("body").isNotNull()).orderBy("place").limit(MOST)
    opened = []
    for row in sealed.toLocalIterator():
        keys = keys_of(SealedRecord(row["message_id"], row["lane"], bytes(row["body"])))
        opened.append((row["place"], sorted(set(keys) - set(row["known"]))))
    return opened


def _with_keys(bare: DataFrame, keys: DataFrame, count: int) -> DataFrame:
    nobody = F.lit(None).cast("string")
    to = F.transform(
        "keys",
        lambda key: F.struct(
            key.alias("delivery_key"), nobody.alias("receiver"), nobody.alias("receiver_hash")
        ),
    )
    found = bare.drop("deliveries").join(
        F.broadcast(keys) if count <= _BROADCAST else keys, on="place", how="inner"
    )
    return found.withColumn("deliveries", to)
