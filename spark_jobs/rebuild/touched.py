"""Rows of `deliveries` that new parts touch.

A row is found by a 64-bit hash of its key, so that a million keys are some 16 MB on each executor. Two keys
with one hash only read a row that did not need it. The newest `open_days` days are asked for every key. An
older day is asked for the keys that may be in it: those of parts that do not prove that their delivery
began in an open day. Such a proof is the notification's `created_at`, with a day's margin for a producer's
clock. A duplicate or a conflict is no such proof: the id was used before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tracing.events import Stage

BROADCAST: Final = 4_000_000
"""Keys that are sent to every executor at most; more are joined by a shuffle."""
_MARGIN: Final = timedelta(days=1)


class Keys(NamedTuple):
    """Hashes of the new parts' keys."""

    frame: DataFrame
    """`hash`, `created_at`: null where the part proves nothing."""
    number: int


@contextmanager
def keys_of(came: DataFrame) -> Iterator[Keys]:
    """Keeps the keys of these parts while the caller works with them."""
    again = F.coalesce(
        F.col("event.stage").isin([Stage.DUPLICATE.value, Stage.CONFLICT.value]), F.lit(False)
    )
    created = F.coalesce("event.created_at", "record.created_at")
    frame = (
        came.select(_hash(), F.when(~again & (created > 0), created).alias("created_at"))
        .groupBy("hash")
        .agg(F.min(F.coalesce("created_at", F.lit(0))).alias("created_at"))
        .persist()
    )
    try:
        yield Keys(frame, frame.count())
    finally:
        frame.unpersist()


def days(rows: DataFrame, keys: Keys, have: Collection[date], open_days: int) -> list[date]:
    """Returns the days, of those that the table has, with a row that is touched."""
    ordered = sorted(have)
    newest, older = ordered[-open_days:], ordered[:-open_days]
    found = _hit(rows, keys, newest)
    if older:
        start = datetime.combine(newest[0], datetime.min.time(), UTC) + _MARGIN
        late = keys.frame.where(F.col("created_at") < int(start.timestamp() * 1000))
        count = late.count()
        found += _hit(rows, Keys(late, count), older) if count else []
    return found


def of(rows: DataFrame, keys: Keys) -> DataFrame:
    """Returns the rows that are touched."""
    return rows.join(_wanted(keys), on=_hash() == F.col("wanted"), how="left_semi")


def others(rows: DataFrame, keys: Keys) -> DataFrame:
    """Returns the rows that are not touched."""
    return rows.join(_wanted(keys), on=_hash() == F.col("wanted"), how="left_anti")


def _hit(rows: DataFrame, keys: Keys, among: list[date]) -> list[date]:
    if not among:
        return []
    near = rows.where(F.col("day").isin(among)).select("day", "delivery_key")
    return [row["day"] for row in of(near, keys).select("day").distinct().collect()]


def _wanted(keys: Keys) -> DataFrame:
    wanted = keys.frame.select(F.col("hash").alias("wanted"))
    return F.broadcast(wanted) if keys.number <= BROADCAST else wanted


def _hash() -> Column:
    return F.xxhash64("delivery_key").alias("hash")
