"""The processes of `make test` are forks of one that collected all tests (decision 298). None is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

GOOD = """
import os

def test_one():
    assert os.environ["PYTEST_XDIST_WORKER"]
    assert {parent}

def test_two(): pass
"""
A_FORK = 'os.getppid() == int(os.environ["COLLECTED_BY"])'
FEWER = """
import os

def pytest_collection_modifyitems(items):
    if "PYTEST_XDIST_WORKER" in os.environ:
        del items[1:]
"""


def ran(folder: Path, **modules: str) -> tuple[int, str]:
    """Returns the exit code and the output of these modules in two processes."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    code = (
        "import os, sys; os.environ['COLLECTED_BY'] = str(os.getpid());"
        "from tests.prefork import main; sys.exit(main(*sys.argv[1:]))"
    )
    plain = {name: one for name, one in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", code, "2", "--import-mode=importlib", "-ra", "."],
        cwd=folder,
        env={**plain, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stdout


def test_tests_run_in_forks_of_the_process_that_collected_them(tmp_path: Path) -> None:
    code, shown = ran(tmp_path, test_good=GOOD.format(parent=A_FORK))
    assert (code, "2 passed" in shown) == (0, True), shown


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("def test_three(: pass\n", 1, "ERROR test_bad.py"),
        (
            "import pytest\npytest.importorskip('nothing_there')\ndef test_three(): pass\n",
            0,
            "SKIPPED [1]",
        ),
    ],
    ids=["broken", "skipped"],
)
def test_a_module_that_is_not_imported_as_a_whole_is_told(
    tmp_path: Path, text: str, code: int, told: str
) -> None:
    found, shown = ran(tmp_path, test_good=GOOD.format(parent=f"not {A_FORK}"), test_bad=text)
    assert found == code, shown
    assert told in shown


def test_a_fork_with_other_tests_ends_the_run(tmp_path: Path) -> None:
    code, shown = ran(tmp_path, conftest=FEWER, test_good=GOOD.format(parent=A_FORK))
    assert code == 3, shown
    assert "a fork collected 1 tests, its parent 2: nothing is run" in shown
