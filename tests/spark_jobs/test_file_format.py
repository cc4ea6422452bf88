"""Files of `deliveries`, by the footers that Parquet's own reader shows and by Delta's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import jvm
from spark_jobs.tables import EVENT as DDL
from spark_jobs.warehouse import Warehouse
from tests.spark_jobs.rebuild.literals import DAY, NOON, event, frame

EVENT_FIELDS = [field.split()[0] for field in DDL.replace("\n", " ").split(",")]
EVENT = "timeline.list.element"


def columns_of(spark: SparkSession, file: Path) -> dict[str, Any]:
    """Parquet's metadata of each column of the file's first row group."""
    java, conf = jvm.jvm_of(spark), jvm.hadoop_conf(spark)
    path = java.org.apache.hadoop.fs.Path(str(file))
    source = java.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
    reader = java.org.apache.parquet.hadoop.ParquetFileReader.open(source)
    try:
        found = reader.getFooter().getBlocks()[0].getColumns()
        return {str(one.getPath().toDotString()): one for one in found}
    finally:
        reader.close()


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table's folder, only read, with equal rows: a dictionary pays for each of their columns."""
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("format")))
    one = event("settled", NOON, state="SENT", origin="t/0/1")
    row = {
        "day": DAY, "delivery_key": "k" * 32, "message_id": "m" * 32, "lane": "sms.notice",
        "template": "T" * 20, "created_at": NOON, "acceptances": 1, "missing": [],
        "timeline": [tuple(one.get(name) for name in EVENT_FIELDS)],
    }  # fmt: skip
    rows = frame(spark, "deliveries", [row] * 200).coalesce(1)
    warehouse.replace_days("deliveries", rows, [DAY], "test", 1)
    return Path(warehouse.path("deliveries"))


def test_values_that_differ_have_no_dictionary(spark: SparkSession, written: Path) -> None:
    (file,) = written.glob("day=*/*.parquet")
    found = columns_of(spark, file)
    encoded = {name for name, one in found.items() if one.hasDictionaryPage()}
    assert {"lane", "template", f"{EVENT}.stage", f"{EVENT}.lane"} <= encoded
    plain = {"delivery_key", "message_id", "created_at", f"{EVENT}.id", f"{EVENT}.at"}
    assert not plain & encoded
    assert plain <= found.keys()


def test_statistics_are_of_columns_that_are_asked(spark: SparkSession, written: Path) -> None:
    (file,) = written.glob("day=*/*.parquet")
    found = columns_of(spark, file)
    empty = {name for name, one in found.items() if one.getStatistics().isEmpty()}
    assert empty == {name for name in found if name.startswith(f"{EVENT}.")}
    newest = sorted(written.glob("_delta_log/*.json"))[-1]
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    (added,) = [json.loads(one["add"]["stats"]) for one in actions if "add" in one]
    assert added["numRecords"] == 200
    assert added["minValues"] == {
        "message_id": "m" * 32, "lane": "sms.notice", "template": "T" * 20, "created_at": NOON,
        "acceptances": 1,
    }  # fmt: skip


def test_settings_end_with_the_write(spark: SparkSession, written: Path) -> None:
    assert written.is_dir()
    assert spark.conf.get("parquet.size.statistics.enabled", None) is None
    assert spark.conf.get("parquet.enable.dictionary#delivery_key", None) is None
