"""Rows that came in since the last rebuild, by the tables' versions.

A rebuild notes each table's id and version before it reads. The next one reads the commits after them that
appended rows, from Delta's change feed. Commits that rewrite rows (bodies leave) are passed over. Where the
feed does not reach back, or a table was made anew, the rebuild reads everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs import jvm
from spark_jobs.warehouse import SPARK_ERRORS, Warehouse, columns_of

SOURCES: Final = ("events", "records", "dead_letters", "trace_records")
RESULT: Final = "deliveries"

Marks = Mapping[str, tuple[str, int]]
"""Table → its id and version."""


def marks(warehouse: Warehouse) -> dict[str, tuple[str, int]]:
    """Returns the marks of all tables that a rebuild reads. They must exist."""
    return {
        table: jvm.table_mark(warehouse.spark, warehouse.path(table))
        for table in (*SOURCES, RESULT)
    }


def marks_of(figures: Mapping[str, object] | None) -> dict[str, tuple[str, int]]:
    """Returns the marks in an earlier run's figures; empty without them."""
    noted = (figures or {}).get("marks")
    if not isinstance(noted, Mapping):
        return {}
    return {str(table): (str(mark[0]), int(mark[1])) for table, mark in noted.items()}


class NewRows(NamedTuple):
    """Rows between two marks, by source."""

    frames: dict[str, DataFrame]
    days: dict[str, set[date]]
    """Days of these rows; none where nothing came."""


def new_rows(warehouse: Warehouse, since: Marks, now: Marks) -> NewRows | None:
    """Returns each source's rows between the marks; None if only a whole rebuild can tell."""
    if any(table not in since or since[table][0] != now[table][0] for table in now):
        return None
    if since[RESULT][1] > now[RESULT][1]:
        return None
    try:
        frames = {
            table: _between(warehouse, table, since[table][1], now[table][1]) for table in SOURCES
        }
        return NewRows(frames, _days(frames))
    except SPARK_ERRORS:
        # The log or a file of these commits is gone, or the feed was off.
        return None


def _between(warehouse: Warehouse, table: str, since: int, upto: int) -> DataFrame:
    path = warehouse.path(table)
    versions = range(since + 1, upto + 1)
    appended = [version for version in versions if _appends(warehouse, path, version)]
    if not appended:
        return warehouse.read(table).limit(0)
    feed = (
        warehouse.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", since + 1)
        .option("endingVersion", upto)
        .load(path)
    )
    if len(appended) < len(versions):
        feed = feed.where(F.col("_commit_version").isin(appended))
    return feed.where(F.col("_change_type") == "insert").select(*columns_of(table))


def _appends(warehouse: Warehouse, path: str, version: int) -> bool:
    info = jvm.commit_info(warehouse.spark, path, version)
    mode: str | None = info.get("operationParameters", {}).get("mode")
    return mode == "Append"


def _days(frames: Mapping[str, DataFrame]) -> dict[str, set[date]]:
    """Opens every file: one that is gone must not end the rebuild later."""
    days: dict[str, set[date]] = {table: set() for table in frames}
    named = [frame.select(F.lit(table).alias("name"), "day") for table, frame in frames.items()]
    for row in reduce(DataFrame.union, named).distinct().collect():
        days[row["name"]].add(row["day"])
    return days
