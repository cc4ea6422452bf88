"""Calls into Spark's JVM that PySpark has no method for. No other module reaches for the gateway."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from py4j.java_gateway import JavaClass, JavaMember  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

_NAMED_BY_COLUMNS: Final = (
    "functions",
    "org.apache.spark.sql.functions",
    "PythonUtils",
    "PythonSQLUtils",
)
"""Classes that PySpark looks up for each column, by the names that it has for them."""


class Usage(NamedTuple):
    """Sums of the session's executors since its start."""

    shuffled: int
    """Bytes written for shuffles."""
    read: int
    """Bytes read from the warehouse."""
    tasks: int
    failed: int
    peak_memory: int
    """Highest use of the driver's heap so far, in bytes."""


def jvm_of(spark: SparkSession) -> Any:
    """Returns the gateway's view of Java packages."""
    return spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public name for it


def is_stopped(spark: SparkSession) -> bool:
    """Returns True if Spark ended by itself, as it does after an error of its scheduler, or if its Java
    process is gone. No job can run in this process any more."""
    try:
        stopped: bool = spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - no public name for it
    except (Py4JError, OSError):
        return True
    return stopped


class _RememberedClass(JavaClass):  # type: ignore[misc]
    """A Java class whose static methods are looked up once each."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


def remember_classes(spark: SparkSession) -> None:
    """Looks up once what PySpark looks up for each column. Each time Java would search all jars for a
    `functions` in each imported package, and copy all methods of a class to find one (decision 295)."""
    view = jvm_of(spark)
    for name in _NAMED_BY_COLUMNS:
        found = getattr(view, name)
        # An attribute of the view comes before py4j's own search.
        setattr(view, name, _RememberedClass(found._fqn, found._gateway_client))  # noqa: SLF001


def java_session(spark: SparkSession) -> Any:
    """Returns the Java SparkSession."""
    return spark._jsparkSession  # noqa: SLF001 - PySpark has no public name for it


def usage_of(spark: SparkSession) -> Usage:
    """Returns what the session used so far, from Spark's status store."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no public name for it
    context.listenerBus().waitUntilEmpty()
    found = context.statusStore().executorList(False)
    all_ = [found.apply(index) for index in range(found.size())]
    return Usage(
        shuffled=sum(one.totalShuffleWrite() for one in all_),
        read=sum(one.totalInputBytes() for one in all_),
        tasks=sum(one.totalTasks() for one in all_),
        failed=sum(one.failedTasks() for one in all_),
        peak_memory=_peak_heap(spark),
    )


def _peak_heap(spark: SparkSession) -> int:
    pools = jvm_of(spark).java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    heap = [pool for pool in pools if str(pool.getType()) == "Heap memory"]
    return sum(pool.getPeakUsage().getUsed() for pool in heap)


def one_row(spark: SparkSession, ddl: str, values: Sequence[Any]) -> DataFrame:
    """Returns a frame of one row that lives in the driver's memory.

    Spark prints the columns of such a frame, never its values: plan, UI page, event log and log hold none
    of them. `createDataFrame` would write them into a temporary file first.
    """
    logging.getLogger("py4j").setLevel(
        logging.WARNING
    )  # below it writes every call with its values
    jvm = jvm_of(spark)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public name for it
    cells = gateway.new_array(jvm.java.lang.Object, len(values))
    for index, value in enumerate(values):
        cells[index] = value
    rows = jvm.java.util.ArrayList()
    rows.add(jvm.org.apache.spark.sql.RowFactory.create(cells))
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)
    return DataFrame(java_session(spark).createDataFrame(rows, schema), spark)


def transaction_version(spark: SparkSession, path: str, app: str) -> int:
    """Returns the newest `txnVersion` that the Delta table holds of an application; -1 without one."""
    log = jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    found = log.update(False, _none(spark), _none(spark)).transactions().get(app)
    return int(found.get()) if found.isDefined() else -1


def files_of(spark: SparkSession, path: str) -> DataFrame:
    """Returns the files of the Delta table's newest version, with `partitionValues`."""
    log = jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    return DataFrame(log.update(False, _none(spark), _none(spark)).allFiles().toDF(), spark)


def commit_info(spark: SparkSession, path: str, version: int | None = None) -> dict[str, Any]:
    """Returns `commitInfo` of a commit of the Delta table, by default the newest. It reads the
    commit's file, in no Spark job. Raises Py4JJavaError if the file is gone."""
    jvm = jvm_of(spark)
    if version is None:
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
        version = log.unsafeVolatileSnapshot().version()
    file = jvm.org.apache.hadoop.fs.Path(f"{path}/_delta_log/{version:020d}.json")
    stream = file.getFileSystem(hadoop_conf(spark)).open(file)
    try:
        lines = bytes(stream.readAllBytes()).splitlines()
    finally:
        stream.close()
    found = (msgspec.json.decode(line).get("commitInfo") for line in lines)
    return next((one for one in found if one), {})


def hadoop_conf(spark: SparkSession) -> Any:
    """Returns Hadoop's configuration of the session."""
    return java_session(spark).sessionState().newHadoopConf()


def table_mark(spark: SparkSession, path: str) -> tuple[str, int]:
    """Returns the id and the newest version of a Delta table."""
    log = jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    snapshot = log.update(False, _none(spark), _none(spark))
    return str(snapshot.metadata().id()), int(snapshot.version())


def _none(spark: SparkSession) -> Any:
    return jvm_of(spark).scala.Option.empty()
