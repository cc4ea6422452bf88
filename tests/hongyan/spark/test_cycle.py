"""The order of a cycle's jobs, and what a failure ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hongyan.spark.cycle import JOBS, Cycle, EndedJob, _sentence
from hongyan.spark.schedule import run_every
from hongyan.spark.wiring import JobResult
from spark_jobs.errors import NoSpark
from spark_jobs.positions import Positions


class RecordedCycle(Cycle):
    """Jobs that do nothing, or fail."""

    def __init__(self, failing: Collection[str] = (), stop: threading.Event | None = None) -> None:
        self._failing = failing
        self._stop = stop

    def _job(self, job: str, positions: list[Positions]) -> EndedJob:
        if self._stop is not None:
            self._stop.set()
        if job in self._failing:
            return EndedJob(job, 1, None, "it failed")
        return EndedJob(job, 1, JobResult({}), "")


def jobs_of(cycle: Cycle, **given: Any) -> list[str]:
    return [one.job for one in cycle.run(JOBS, **given)]


def test_the_ledger_is_asked_after_the_ingest_and_before_the_rebuild() -> None:
    assert jobs_of(RecordedCycle()) == ["ingest", "lost", "rebuild", "audit"]


@pytest.mark.parametrize(
    ("failing", "run"),
    [
        ({"ingest"}, ["ingest"]),
        ({"rebuild"}, ["ingest", "lost", "rebuild"]),
        ({"lost"}, ["ingest", "lost", "rebuild"]),
    ],
)
def test_only_a_failed_ingest_holds_up_findings(failing: set[str], run: list[str]) -> None:
    assert jobs_of(RecordedCycle(failing)) == run


def test_a_stop_ends_the_cycle_after_the_job_at_work() -> None:
    stop = threading.Event()
    assert jobs_of(RecordedCycle(stop=stop), stop=stop) == ["ingest"]


def test_an_error_of_spark_is_no_fault_of_ours() -> None:
    from pyspark.errors import AnalysisException

    assert _sentence(AnalysisException("the file is gone")).startswith("Spark: ")
    assert _sentence(KeyError("x")) == "a fault of ours: KeyError"


@pytest.mark.soak(small="::test_a_loop_ends_once_spark_ended")
@pytest.mark.parametrize("end", ["context", "java"])
def test_spark_that_ended_by_itself_ends_the_process(end: str, tmp_path: Path) -> None:
    """In a process of its own: all other tests share one session."""
    command = [sys.executable, "-m", "tests.hongyan.spark.ended_session", end, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines()[-2:] == ["NoSpark", "closed"]


class EndedSession:
    """Of a Java process that is gone."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - PySpark's name
        raise ConnectionRefusedError


def test_a_loop_ends_once_spark_ended() -> None:
    """Else each later cycle would fail, for ever."""
    cycle = Cycle.__new__(Cycle)
    cycle._duty = cast(Any, SimpleNamespace(check=lambda: None))
    cycle._warehouse = cast(Any, SimpleNamespace(spark=EndedSession()))
    with pytest.raises(NoSpark, match="Spark ended while it worked"):
        run_every(cycle, ["ingest"], 600.0, threading.Event())
