"""One Spark session for all tests that ask for it, in one process: its start takes seconds of both cores.

spark        the session: local[2], Delta Lake, UTC
warehouse    a warehouse of this test's own, still without tables
made_warehouse  one with all tables, empty: a copy, as `copy_of` makes them
job_config   a JobConfig for either, without Kafka and ledger
driver_output   the driver's log and Spark's event log, so far

tests/scheduling.py has all of them run in one process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hongyan.spark.jars import NoJars, jar_files
from spark_jobs.config import JdbcLogin, JobConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.warehouse import Warehouse

PROPERTIES = {
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
    "spark.driver.memory": "1g",
    # Our tables have a few rows: to compile a query, or to plan it again at each stage, takes longer than
    # to interpret it. `make truth` and `hongyan bench spark` run with both, as a deployment does.
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": False,
    # Most code runs a few times: Java's second compiler takes more time than it gives back.
    # Without it Java keeps 48 MB of compiled code: it throws code away all the time to compile it again.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -XX:ReservedCodeCacheSize=240m",
    # A task takes memory by the page, which Java fills with zeros first: by default 16 MB for a few rows.
    "spark.buffer.pageSize": "1m",
    # Nobody looks at the plans and stages of past queries; 1,000 of each fill the heap.
    "spark.sql.ui.retainedExecutions": 5,
    "spark.ui.retainedJobs": 5,
    "spark.ui.retainedStages": 5,
    "spark.ui.retainedTasks": 50,
}
LOG_CONFIG = """
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/driver.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            # A test that is cut off in a call of the JVM breaks the session for all others.
            item.add_marker(pytest.mark.timeout(600))


def config_for(warehouse: str, **changes: object) -> JobConfig:
    """A JobConfig with nothing behind it but a warehouse."""
    values = {
        "warehouse": warehouse,
        "topic_prefix": "hongyan",
        "kafka": {},
        "ledger": JdbcLogin("", ""),
    }
    return JobConfig(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    from spark_jobs.errors import NoSpark
    from spark_jobs.session import open_session

    folder = tmp_path_factory.mktemp("spark")
    log_config = folder / "log4j2.properties"
    log_config.write_text(LOG_CONFIG.format(folder=folder))
    java = f"{PROPERTIES['spark.driver.extraJavaOptions']} -Dlog4j2.configurationFile={log_config}"
    (folder / "events").mkdir()
    places = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "unused"),
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": str(folder / "events"),
        "spark.eventLog.compress": False,
        "spark.driver.extraJavaOptions": java,
    }
    try:
        session = open_session(
            config_for(str(folder)),
            "local[2]",
            jar_files((), print),
            {**PROPERTIES, **places},
            "tests",
        )
    except (NoJars, NoSpark) as exc:
        if os.environ.get("HONGYAN_REQUIRE_STACK") == "1":
            pytest.fail(str(exc), pytrace=False)
        pytest.skip(str(exc))
    yield session
    session.stop()


@pytest.fixture
def driver_output(spark: SparkSession) -> Callable[[], Iterator[bytes]]:
    """Gives the driver's log and the event log as they are by now."""
    folder = Path(spark.conf.get("spark.eventLog.dir") or "").parent

    def read() -> Iterator[bytes]:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        yield (folder / "driver.log").read_bytes()
        for path in (folder / "events").rglob("*"):
            if path.is_file():
                yield path.read_bytes()

    return read


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    from spark_jobs.warehouse import Warehouse

    return Warehouse(spark, str(tmp_path / "warehouse"))


def copy_of(warehouse: Warehouse, root: Path) -> Warehouse:
    """Copies a warehouse's files to another root. Delta's logs name files relative to their table, so the
    copy is a warehouse of its own (`test_copies.py`). To make the tables takes Spark seconds."""
    from spark_jobs.warehouse import Warehouse

    shutil.copytree(warehouse.root, root)
    return Warehouse(warehouse.spark, str(root))


@pytest.fixture(scope="session")
def empty_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse with all tables, empty; never written to."""
    from spark_jobs.warehouse import Warehouse

    made = Warehouse(spark, str(tmp_path_factory.mktemp("empty") / "warehouse"))
    made.make_all()
    return made


@pytest.fixture
def made_warehouse(empty_tables: Warehouse, tmp_path: Path) -> Warehouse:
    return copy_of(empty_tables, tmp_path / "warehouse")


@pytest.fixture
def job_config(tmp_path: Path) -> JobConfig:
    return config_for(str(tmp_path / "warehouse"))
