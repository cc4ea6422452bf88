"""Measures one step of a Spark session: seconds, bytes shuffled, peak memory of its JVM, and its plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_NODES: Final = (
    "PythonUDF",
    "ArrowEvalPython",
    "BatchEvalPython",
    "ArrowAggregatePython",
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "MapInPandas",
    "MapInArrow",
    "PythonMapInArrow",
    "PythonRDD",
)
"""Words of a physical plan that runs Python on the executors."""
_MIB: Final = 1 << 20
_RESET_PEAK: Final = "5"
"""Written to `/proc/PID/clear_refs`, it sets the peak to what is resident now."""


class Step(msgspec.Struct):
    """Figures of one step."""

    seconds: float
    shuffled_bytes: int
    peak_rss_mib: float
    """Of the JVM."""
    python: list[str]
    """Plans with a Python function on the path; there must be none."""


class SessionMeter:
    """Reads a session's own books: Spark's status stores and the kernel's record of the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        from spark_jobs import jvm

        self._spark, self._jvm = spark, jvm
        pid = int(jvm.jvm_of(spark).java.lang.ProcessHandle.current().pid())
        self._process = Path(f"/proc/{pid}")

    def measure(self, step: Callable[[], object]) -> Step:
        """Runs the step and returns its figures."""
        self._jvm.jvm_of(self._spark).java.lang.System.gc()
        self._process.joinpath("clear_refs").write_text(_RESET_PEAK)
        shuffled, last = self._shuffled(), self._last_execution()
        began = time.monotonic()
        step()
        seconds = time.monotonic() - began
        return Step(
            seconds=round(seconds, 2),
            shuffled_bytes=self._shuffled() - shuffled,
            peak_rss_mib=round(self._peak_bytes() / _MIB, 1),
            python=self._python_after(last),
        )

    def _shuffled(self) -> int:
        """Waits until Spark's listeners have seen all that ended."""
        return self._jvm.usage_of(self._spark).shuffled

    def _peak_bytes(self) -> int:
        for line in self._process.joinpath("status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the kernel keeps no peak of the JVM's memory")

    def _executions(self) -> list[Any]:
        store = self._jvm.java_session(self._spark).sharedState().statusStore()
        found = store.executionsList()
        return [found.apply(number) for number in range(found.size())]

    def _last_execution(self) -> int:
        return max((int(one.executionId()) for one in self._executions()), default=-1)

    def _python_after(self, last: int) -> list[str]:
        plans = [
            str(one.physicalPlanDescription())
            for one in self._executions()
            if int(one.executionId()) > last
        ]
        if not plans:
            raise RuntimeError("Spark kept no plan of the step: nothing can be said about it")
        return [plan for plan in plans if runs_python(plan)]


def runs_python(plan: str) -> bool:
    """Returns whether a physical plan runs Python on the executors."""
    return any(node in plan for node in PYTHON_NODES)
