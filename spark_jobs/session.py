"""The Spark session of the jobs: Delta Lake, UTC, no web page, and jars from one list."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_jobs.config import JobConfig
from spark_jobs.errors import NoSpark
from spark_jobs.jvm import is_stopped, remember_classes

LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")
_COORDINATES: Final = 3
"""Parts of GROUP:NAME:VERSION."""
_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Logs of our tables are short: 50 tasks to read one would take longer than the read.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_DEFAULTS: Final = {
    **_DELTA,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # A rebuild alone generates 100 classes. Spark would keep 100, and compile all again in the next job.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Else each column that a job names costs several calls into Java, and a look at Java's stack, for a
    # place in the text of an error. No message of ours has it (decision 282).
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A name like `wrong_receiver` is no secret, and none is in the configuration; this is a second fence.
    "spark.redaction.regex": "(?i)secret|password|passwd|token|credential|jaas|[.]key$|access[.]?key",
}
_LOCAL: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # A rebuild sorts each part of a shuffle in memory: of ten million events an eighth does not fit. Spark
    # puts small parts together again.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
    # A vacuum lists files with this many tasks; Spark's 10,000 take a minute here.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_CONFIG}",
}
"""Beside `_DEFAULTS` where driver and executors are one process here."""


def open_session(
    config: JobConfig, master: str, jars: Sequence[str], properties: Mapping[str, Any], name: str
) -> SparkSession:
    """Returns the session, started if none is active in this process.

    `master` empty: as spark-submit says. `jars`: files, or Maven coordinates, which Spark then resolves.
    `properties` replace ours. No secret is among the session's properties: Spark starts its JVM with them
    on the command line. Raises NoSpark.
    """
    _require_java()
    # PySpark writes a page of JSON for each failed query, beside the exception that it raises.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    for key, value in session_properties(master, jars, properties).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as exc:
        raise NoSpark(
            "Spark's Java process ended while it started; its own output above says why"
        ) from exc
    remember_classes(session)
    return session


def require_alive(spark: SparkSession) -> None:
    """Raises NoSpark if no job can run in the session any more."""
    if is_stopped(spark):
        raise NoSpark(
            "Spark ended while it worked, for lack of memory perhaps; start this process again, with more"
            ' "spark.driver.memory" in spark.properties if that repeats'
        )


def close_session(spark: SparkSession) -> None:
    """Ends the session. What is left of one that ended by itself raises nothing."""
    gone = is_stopped(spark)
    try:
        spark.stop()
    except Exception:
        if not gone:
            raise


def session_properties(
    master: str, jars: Sequence[str], properties: Mapping[str, Any]
) -> dict[str, str]:
    """Returns all properties of the session."""
    found = {**_DEFAULTS, **(_LOCAL if master.startswith("local") else {}), **_jars(jars)}
    return found | {key: _text(value) for key, value in properties.items()}


def _jars(jars: Sequence[str]) -> dict[str, str]:
    coordinates = [one for one in jars if is_coordinate(one)]
    files = [one for one in jars if not is_coordinate(one)]
    found = {}
    if coordinates:
        found["spark.jars.packages"] = ",".join(coordinates)
    if files:
        found["spark.jars"] = ",".join(files)
    return found


def is_coordinate(jar: str) -> bool:
    """Returns True for GROUP:NAME:VERSION, False for a file or URL."""
    return len(jar.split(":")) == _COORDINATES and "/" not in jar


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_java() -> None:
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started it
        return
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").is_file() if home else bool(shutil.which("java"))
    if not found:
        where = f"JAVA_HOME {home} has none" if home else "there is no `java` in PATH"
        raise NoSpark(f"the Spark jobs need Java 17 or newer, and {where}; install it")
