"""One process runs all tests of a module with a fixture of its own, however many share the run."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import cast

import pytest

from tests.scheduling import SPARK, group_of

_TESTS = 12
"""More than the processes of a run: without the group several of them would make it."""


@pytest.fixture(scope="module")
def made_by(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str, worker_id: str) -> str:
    """The process that makes it, which is refused where another one made it before."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder if worker_id == "master" else folder.parent
    (shared / f"made-{testrun_uid}").touch(exist_ok=False)
    return worker_id


@pytest.mark.parametrize("number", range(_TESTS))
def test_one_process_runs_all_tests_of_a_module_that_makes_something_once(
    number: int, made_by: str
) -> None:
    assert made_by == os.environ.get("PYTEST_XDIST_WORKER", "master")


def test_a_test_without_such_a_thing_is_in_no_group(request: pytest.FixtureRequest) -> None:
    assert group_of(request.node) is None


@pytest.mark.parametrize(
    ("path", "group"), [(f"{SPARK}lost/test_job.py", SPARK), (f"{SPARK}truth/test_truth.py", None)]
)
def test_all_tests_of_the_spark_session_are_one_group(path: str, group: str | None) -> None:
    item = cast(pytest.Item, SimpleNamespace(nodeid=f"{path}::test_x"))
    assert group_of(item) == group
