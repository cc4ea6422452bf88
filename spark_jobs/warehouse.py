"""The warehouse: Delta tables under one folder or object-store URL, each partitioned by day."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cache, reduce
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from spark_jobs import jvm
from spark_jobs.errors import WarehouseTrouble
from spark_jobs.file_format import PROPERTIES, written_as
from spark_jobs.tables import TABLES

KEPT_HOURS: Final = 2
"""A file that a commit replaced is kept for so long: the longest time that a reader may take."""
_PROPERTIES: Final = {
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.logRetentionDuration": "interval 2 days",
    # A rebuild reads what came in since the last one. A commit that only appends writes nothing more.
    "delta.enableChangeDataFeed": "true",
    # Files stay readable for every reader of Delta, old ones, too.
    "delta.enableDeletionVectors": "false",
}
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""All errors of Spark's own."""
_RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"


class Warehouse:
    """Reads and writes the tables of `spark_jobs.tables.TABLES`. Every method may raise WarehouseTrouble.

    A write has an application name and a version that only grows: Delta keeps both with the commit, and the
    same version again changes nothing.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root.rstrip("/")

    def path(self, table: str) -> str:
        """Returns the table's folder."""
        return f"{self.root}/{table}"

    def exists(self, table: str) -> bool:
        """Returns True once the table was made."""
        found: bool = jvm.jvm_of(self.spark).io.delta.tables.DeltaTable.isDeltaTable(
            jvm.java_session(self.spark), self.path(table)
        )
        return found

    def make_all(self) -> None:
        """Makes the tables that are missing."""
        for table in TABLES:
            if not self.exists(table):
                self._make(table)

    def read(self, table: str, days: Collection[date] | None = None) -> DataFrame:
        """Returns the table's rows, of these days if any are given; empty if there is no such table yet."""
        if not self.exists(table):
            return self.spark.createDataFrame([], schema_of(table))
        with _errors(table):
            frame = self.spark.read.format("delta").load(self.path(table))
            frame = frame.select(*columns_of(table))
        return frame if days is None else frame.where(F.col("day").isin(sorted(days)))

    def days(self, *tables: str) -> dict[str, set[date]]:
        """Returns the days of which each of these tables has rows, by Delta's log: no file is opened."""
        found: dict[str, set[date]] = {table: set() for table in tables}
        logs = [self._partitions(table) for table in tables if self.exists(table)]
        if logs:
            for row in reduce(DataFrame.union, logs).distinct().collect():
                found[row["name"]].add(row["day"])
        return found

    def append(self, table: str, frame: DataFrame, app: str, version: int) -> None:
        """Adds rows in one commit. Changes nothing if the table holds this version or a later one."""
        self._write(table, frame, "append", app, version)

    def replace_days(
        self, table: str, frame: DataFrame, days: Collection[date], app: str, version: int
    ) -> None:
        """Replaces all rows of these days in one commit; without days it does nothing. Every row of `frame`
        must be of one of them."""
        if days:
            self._write(table, frame, "overwrite", app, version, replaceWhere=_in_days(days))

    def update(self, table: str, changes: Mapping[str, str], condition: str) -> None:
        """Changes columns of the rows that a SQL condition names, in one commit."""
        named = ", ".join(f"{column} = {value}" for column, value in changes.items())
        with _errors(table):
            self.spark.sql(
                f"UPDATE delta.`{self.path(table)}` SET {named} WHERE {condition}"  # noqa: S608 - ours
            )

    def version(self, table: str, app: str) -> int:
        """Returns the newest version that the table holds of an application; -1 without one."""
        if not self.exists(table):
            return -1
        with _errors(table):
            return jvm.transaction_version(self.spark, self.path(table), app)

    def written_rows(self, table: str) -> int:
        """Returns the rows that the table's newest commit wrote."""
        with _errors(table):
            commit = jvm.commit_info(self.spark, self.path(table))
        return int(commit.get("operationMetrics", {}).get("numOutputRows", 0))

    def vacuum(self) -> None:
        """Deletes files that no table has held for `KEPT_HOURS`."""
        self.spark.conf.set(_RETENTION_CHECK, "false")
        for table in filter(self.exists, TABLES):
            with _errors(table):
                self.spark.sql(f"VACUUM delta.`{self.path(table)}` RETAIN {KEPT_HOURS} HOURS")

    def _partitions(self, table: str) -> DataFrame:
        with _errors(table):
            files = jvm.files_of(self.spark, self.path(table))
        day = F.col("partitionValues").getItem("day").cast("date")
        return files.select(F.lit(table).alias("name"), day.alias("day"))

    def _make(self, table: str) -> None:
        wanted = {**_PROPERTIES, **PROPERTIES.get(table, {})}
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in wanted.items())
        with _errors(table):
            self.spark.sql(
                f"CREATE TABLE IF NOT EXISTS delta.`{self.path(table)}` ({TABLES[table].strip()})"
                f" USING delta PARTITIONED BY (day) TBLPROPERTIES ({properties})"
            )

    def _write(
        self, table: str, frame: DataFrame, mode: str, app: str, version: int, **options: Any
    ) -> None:
        if not self.exists(table):
            self._make(table)
        writer = frame.select(*columns_of(table)).write.format("delta").mode(mode)
        with _errors(table), written_as(self.spark, table):
            writer.options(txnAppId=app, txnVersion=str(version), **options).save(self.path(table))


@cache
def schema_of(table: str) -> StructType:
    """Returns the table's schema, which Spark's parser reads once. Needs a session."""
    schema = StructType.fromDDL(TABLES[table])
    assert isinstance(schema, StructType)
    return schema


def columns_of(table: str) -> list[str]:
    """Returns the table's columns in order."""
    return schema_of(table).names


def _in_days(days: Collection[date]) -> str:
    named = ", ".join(f"DATE'{day.isoformat()}'" for day in sorted(days))
    return f"day IN ({named})"


@contextmanager
def _errors(table: str) -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as exc:
        raise WarehouseTrouble(f"the warehouse's table {table}: {cause_of(exc)}") from exc


def cause_of(exc: BaseException) -> str:
    """Returns the first line of the innermost cause of a Spark error."""
    java: Any = getattr(exc, "java_exception", None) or getattr(exc, "_origin", None)
    if java is None:
        return _first_line(str(exc))
    while java.getCause() is not None:
        java = java.getCause()
    return _first_line(str(java.toString()))


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:400]
