"""The warehouse: appends once, replaces days, makes what is missing."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.tables import TABLES
from spark_jobs.warehouse import Warehouse, schema_of

MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)


def ranges(spark: SparkSession, *rows: tuple[date, int]) -> DataFrame:
    """Ranges of these days, each with its first offset."""
    full = [(day, 1, "hongyan.trace", "id", 0, first, first + 1, 5) for day, first in rows]
    return spark.createDataFrame(full, schema_of("ranges"))


def firsts(warehouse: Warehouse) -> list[tuple[date, int]]:
    return sorted((row.day, row.first) for row in warehouse.read("ranges").collect())


def test_the_same_version_again_changes_nothing(spark: SparkSession, warehouse: Warehouse) -> None:
    assert warehouse.version("ranges", "ingest") == -1
    warehouse.append("ranges", ranges(spark, (MONDAY, 1)), "ingest", 4)
    warehouse.append("ranges", ranges(spark, (MONDAY, 9)), "ingest", 4)
    warehouse.append("ranges", ranges(spark, (MONDAY, 8)), "ingest", 3)
    assert warehouse.written_rows("ranges") == 1
    assert firsts(warehouse) == [(MONDAY, 1)]
    assert warehouse.version("ranges", "ingest") == 4
    assert warehouse.version("ranges", "rebuild") == -1


def test_days_are_replaced_and_others_stay(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.append("ranges", ranges(spark, (MONDAY, 1), (TUESDAY, 2)), "ingest", 0)
    warehouse.replace_days("ranges", ranges(spark, (TUESDAY, 7)), [TUESDAY], "rebuild", 0)
    assert firsts(warehouse) == [(MONDAY, 1), (TUESDAY, 7)]
    warehouse.replace_days("ranges", ranges(spark), [MONDAY], "rebuild", 1)
    assert firsts(warehouse) == [(TUESDAY, 7)]
    warehouse.vacuum()  # nothing is old enough to go
    assert firsts(warehouse) == [(TUESDAY, 7)]
    assert warehouse.read("ranges", [MONDAY]).count() == 0


def test_missing_tables_are_made_and_read_as_empty(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    assert warehouse.read("deliveries").schema.names == schema_of("deliveries").names
    assert not warehouse.exists("deliveries")
    warehouse.make_all()
    assert all(map(warehouse.exists, TABLES))
    assert warehouse.read("deliveries").count() == 0


def test_days_come_from_the_log(spark: SparkSession, warehouse: Warehouse) -> None:
    assert warehouse.days("ranges") == {"ranges": set()}
    warehouse.append("ranges", ranges(spark, (MONDAY, 1), (TUESDAY, 2)), "ingest", 0)
    warehouse.replace_days("ranges", ranges(spark), [MONDAY], "rebuild", 0)
    assert warehouse.days("ranges", "holes") == {"ranges": {TUESDAY}, "holes": set()}
