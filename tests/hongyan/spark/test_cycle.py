"""The order of a cycle's jobs, and what a failure ends."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import pytest

from hongyan.spark.cycle import JOBS, Cycle, EndedJob, _sentence
from hongyan.spark.wiring import JobResult
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
