"""Rows that came in since the last rebuild, by the tables' versions.

A rebuild notes each table's id and version before it reads. The next one reads the commits after them that
appended rows, from Delta's change feed. Commits that rewrite rows (bodies leave) are passed over. Where the
feed does not reach back, or a table was made anew, the rebuild reads everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs import jvm
from spark_jobs.warehouse import Warehouse, columns_of

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


def new_rows(warehouse: Warehouse, since: Marks, now: Marks) -> dict[str, DataFrame] | None:
    """Returns each source's rows between the marks; None if only a whole rebuild can tell."""
    if any(table not in since or since[table][0] != now[table][0] for table in now):
        return None
    if since[RESULT][1] > now[RESULT][1]:
        return None
    try:
        return {
            table: _between(warehouse, table, since[table][1], now[table][1]) for table in SOURCES
        }
    except PySparkException:
        # The log or a file of these commits is gone, or the feed was off.
        return None


def _between(warehouse: Warehouse, table: str, since: int, upto: int) -> DataFrame:
    if since >= upto:
        return warehouse.read(table).limit(0)
    path = warehouse.path(table)
    history = warehouse.spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT {upto - since}")
    commits = history.select("version", F.col("operationParameters.mode").alias("mode")).collect()
    appended = [
        row["version"] for row in commits if row["mode"] == "Append" and row["version"] > since
    ]
    if not appended:
        return warehouse.read(table).limit(0)
    feed = (
        warehouse.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", since + 1)
        .option("endingVersion", upto)
        .load(path)
    )
    if len(appended) < upto - since:
        feed = feed.where(F.col("_commit_version").isin(appended))
    rows = feed.where(F.col("_change_type") == "insert").select(*columns_of(table))
    # Opens every file: one that is gone must not end the rebuild later.
    rows.select("day").distinct().collect()
    return rows
