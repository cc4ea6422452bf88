"""Rows of `deliveries` that new parts touch.

A row is found by a 64-bit hash of its key, so that a million keys are some 16 MB on each executor. Two keys
with one hash only read a row that did not need it. The newest `open_days` days are asked for every key. An
older day is asked for the keys that may be in it: those of parts that do not prove that their delivery
began in an open day. Such a proof is the notification's `created_at`, with a day's margin for a producer's
clock. A duplicate or a conflict is no such proof: the id was used before. An event that is made of a ledger
row proves nothing: it has the time of the row's claim, and the record may have waited for days. Most keys
with such events alone have their row in a newest day. No older day is asked for these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.states import State
from tracing.events import Stage

BROADCAST: Final = 4_000_000
"""Keys that are sent to every executor at most; more are joined by a shuffle."""
_MARGIN: Final = timedelta(days=1)
_USED_BEFORE: Final = (Stage.DUPLICATE, Stage.CONFLICT)
_OF_A_ROW: Final = (
    Stage.RECEIPT,
    Stage.RECEIPT_CONTRADICTED,
    Stage.RECALL_ASKED,
    Stage.RECALLED,
    Stage.DROPPED,
    Stage.EXPIRED,
    Stage.RESOLVED,
    Stage.OWNER_DEAD,
)
"""Stages that receipts and recovery write from ledger rows. A settled event is such a one if it parks."""


class Keys(NamedTuple):
    """Hashes of keys."""

    frame: DataFrame
    """`hash`, `created_at`: 0 where a part lacks the time, null where all parts are of a ledger row."""
    number: int


class NewKeys(NamedTuple):
    """Hashes of the new parts' keys, and how many there are of each kind."""

    all_: Keys
    late: int
    """Keys that may be in an older day by their time."""
    silent: int
    """Keys without a time."""
    newest: list[date]
    older: list[date]
    """The table's days: the open ones, and those before."""


@contextmanager
def keys_of(came: DataFrame, have: Collection[date], open_days: int) -> Iterator[NewKeys]:
    """Keeps the keys of these parts while the caller works with them. `have`: the days of the table."""
    created = F.coalesce("event.created_at", "record.created_at", F.lit(0))
    proved = (
        F.when(_is_in(_USED_BEFORE), F.lit(0)).when(~_is_of_a_row(), F.greatest(created, F.lit(0)))
    ).cast("bigint")
    frame = (
        came.select(_hash(), proved.alias("created_at"))
        .groupBy("hash")
        .agg(F.min("created_at").alias("created_at"))
        .persist()
    )
    ordered = sorted(have)
    newest, older = ordered[-open_days:], ordered[:-open_days]
    try:
        # One job: each one costs more than its rows where little came in.
        number, late, silent = frame.agg(
            F.count("*"),
            F.count_if(_is_late(newest)) if older else F.lit(0),
            F.count_if(F.col("created_at").isNull()),
        ).collect()[0]
        yield NewKeys(Keys(frame, number), late, silent, newest, older)
    finally:
        frame.unpersist()


def days(rows: DataFrame, keys: NewKeys) -> list[date]:
    """Returns the days, of those that the table has, with a row that is touched."""
    found = _hit(rows, keys.all_, keys.newest)
    if keys.older and (keys.late or keys.silent):
        late = keys.all_.frame.where(_is_late(keys.newest))
        if keys.silent:
            late = late.unionByName(_unplaced(rows, keys))
        late = late.persist()
        count = late.count()
        found += _hit(rows, Keys(late, count), keys.older) if count else []
        late.unpersist()
    return found


def _is_late(newest: Sequence[date]) -> Column:
    start = datetime.combine(newest[0], datetime.min.time(), UTC) + _MARGIN
    return F.col("created_at") < int(start.timestamp() * 1000)


def of(rows: DataFrame, keys: Keys) -> DataFrame:
    """Returns the rows that are touched."""
    return rows.join(_wanted(keys), on=_hash() == F.col("wanted"), how="left_semi")


def others(rows: DataFrame, keys: Keys) -> DataFrame:
    """Returns the rows that are not touched."""
    return rows.join(_wanted(keys), on=_hash() == F.col("wanted"), how="left_anti")


def _unplaced(rows: DataFrame, keys: NewKeys) -> DataFrame:
    """Returns the keys without a time that have no row in the newest days."""
    silent = keys.all_.frame.where(F.col("created_at").isNull())
    near = rows.where(F.col("day").isin(keys.newest)).select("delivery_key")
    placed = of(near, Keys(silent, keys.silent)).select(_hash())
    return silent.join(placed, on="hash", how="left_anti")


def _is_of_a_row() -> Column:
    parks = _is_in([Stage.SETTLED]) & F.col("event.state").eqNullSafe(State.PARKED.value)
    return _is_in(_OF_A_ROW) | parks


def _is_in(stages: Sequence[Stage]) -> Column:
    found = F.col("event.stage").isin([stage.value for stage in stages])
    return F.coalesce(found, F.lit(False))


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
