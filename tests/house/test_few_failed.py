"""Tests that failed in CI run again alone if they are few (decision 154)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

SCRIPT = REPOSITORY / ".ci" / "few_failed.py"


def printed(listed: Path) -> tuple[int, list[str]]:
    """Returns the exit code and the names that are to run again."""
    done = subprocess.run(
        [sys.executable, SCRIPT, listed], capture_output=True, text=True, check=False
    )
    assert done.stderr, "it says what it does"
    return done.returncode, done.stdout.splitlines()


def test_few_are_named_without_the_group_of_their_run(tmp_path: Path) -> None:
    listed = tmp_path / "lastfailed"
    names = [f"tests/a.py::test_a[{number}@x]" for number in range(5)]
    listed.write_text(json.dumps({f"{one}@tests/a.py": True for one in names}))
    assert printed(listed) == (0, names)


@pytest.mark.parametrize("count", [0, 7])
def test_none_or_many_fail_at_once(tmp_path: Path, count: int) -> None:
    listed = tmp_path / "lastfailed"
    listed.write_text(json.dumps(dict.fromkeys(map(str, range(count)), True)))
    assert printed(listed) == (1, [])


def test_a_pytest_that_ended_by_itself_has_no_list(tmp_path: Path) -> None:
    assert printed(tmp_path / "lastfailed") == (1, [])
