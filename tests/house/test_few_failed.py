"""Tests that failed in CI run again alone if they are few (decision 154)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

SCRIPT = REPOSITORY / ".ci" / "few_failed.py"


def printed(*lists: Path) -> tuple[int, list[str]]:
    """Returns the exit code and the names that are to run again."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *lists], capture_output=True, text=True, check=False
    )
    assert done.stderr, "it says what it does"
    return done.returncode, done.stdout.splitlines()


def test_few_are_named_without_the_group_of_their_run(tmp_path: Path) -> None:
    listed = tmp_path / "lastfailed"
    names = [f"tests/a.py::test_a[{number}@x]" for number in range(5)]
    listed.write_text(json.dumps({f"{one}@tests/a.py": True for one in names}))
    assert printed(listed) == (0, names)


def test_each_run_has_its_list(tmp_path: Path) -> None:
    others, pages, none = (tmp_path / name for name in ("others", "pages", "none"))
    others.write_text(json.dumps({"tests/a.py::test_a@tests/a.py": True}))
    pages.write_text(json.dumps({"tests/browser/b.py::test_b": True}))
    assert printed(others, pages, none) == (0, ["tests/a.py::test_a", "tests/browser/b.py::test_b"])


def test_failures_of_all_runs_are_counted_together(tmp_path: Path) -> None:
    lists = [tmp_path / "others", tmp_path / "pages"]
    for one in lists:
        one.write_text(json.dumps({f"{one.name}.py::test_{number}": True for number in range(4)}))
    assert printed(*lists) == (1, [])


@pytest.mark.parametrize("count", [0, 7])
def test_none_or_many_fail_at_once(tmp_path: Path, count: int) -> None:
    listed = tmp_path / "lastfailed"
    listed.write_text(json.dumps(dict.fromkeys(map(str, range(count)), True)))
    assert printed(listed) == (1, [])


def test_a_pytest_that_ended_by_itself_has_no_list(tmp_path: Path) -> None:
    assert printed(tmp_path / "lastfailed") == (1, [])
