"""A warehouse that was copied as files is as one that Spark made and wrote at its place."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import jvm
from spark_jobs.tables import TABLES
from spark_jobs.warehouse import Warehouse, columns_of, schema_of
from tests.spark_jobs.conftest import copy_of

MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)
_OF_ITS_MAKING = ("id", "createdTime")
"""Fields of a table's metadata in which two tables differ that are made alike."""


def append(warehouse: Warehouse, day: date, offset: int) -> None:
    row = (day, 1, "hongyan.trace", "id", 0, offset, offset + 1, 5)
    frame = warehouse.spark.createDataFrame([row], schema_of("ranges"))
    warehouse.append("ranges", frame, "test", offset)


def firsts(warehouse: Warehouse) -> list[tuple[date, int]]:
    return sorted((row.day, row.first) for row in warehouse.read("ranges").collect())


def made_as(warehouse: Warehouse, table: str) -> dict[str, Any]:
    """The table's protocol, its metadata and the kind of its first commit, by its log."""
    log = Path(warehouse.path(table), "_delta_log", f"{0:020d}.json")
    actions = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    found: dict[str, Any] = {kind: action[kind] for action in actions for kind in action}
    assert len(found) == len(actions) == 3
    kept = {key: value for key, value in found["metaData"].items() if key not in _OF_ITS_MAKING}
    return {"protocol": found["protocol"], "metadata": kept, "by": found["commitInfo"]["operation"]}


@pytest.mark.parametrize("table", ["events", "deliveries"])
def test_a_copied_table_is_as_one_that_was_made_here(
    spark: SparkSession, made_warehouse: Warehouse, tmp_path: Path, table: str
) -> None:
    """`deliveries` alone has properties of its own."""
    here = Warehouse(spark, str(tmp_path / "here"))
    here.append(table, spark.createDataFrame([], schema_of(table)), "test", 1)
    assert made_as(made_warehouse, table) == made_as(here, table)


def test_a_copy_has_every_table_and_is_not_made_again(made_warehouse: Warehouse) -> None:
    made_warehouse.make_all()
    for table in TABLES:
        assert jvm.table_mark(made_warehouse.spark, made_warehouse.path(table))[1] == 0
        assert made_warehouse.read(table).schema.names == columns_of(table)
    assert firsts(made_warehouse) == []


@pytest.mark.soak(small="::test_a_copied_table_is_as_one_that_was_made_here")
def test_a_copy_has_the_rows_and_goes_its_own_way(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    append(warehouse, MONDAY, 1)
    append(warehouse, TUESDAY, 2)
    copy = copy_of(warehouse, tmp_path / "copy")
    assert firsts(copy) == [(MONDAY, 1), (TUESDAY, 2)]
    assert copy.version("ranges", "test") == 2
    append(copy, TUESDAY, 2)  # Delta knows of that version
    copy.replace_days("ranges", warehouse.read("ranges", [MONDAY]).limit(0), [MONDAY], "other", 1)
    append(warehouse, MONDAY, 3)
    assert firsts(copy) == [(TUESDAY, 2)]
    assert firsts(warehouse) == [(MONDAY, 1), (MONDAY, 3), (TUESDAY, 2)]
    files = {Path(name).parents[1] for name in copy.read("ranges").inputFiles()}
    assert [path.name for path in files] == ["ranges"]
    assert [path.parent.name for path in files] == ["copy"]
