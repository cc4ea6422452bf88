"""The two runs of all tests beside each other: exit codes, output, and lists of failures (decision 287)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

PYTEST = """#!/bin/bash
case "$*" in
*"--ignore tests/browser"*) run=others cache=.pytest_cache ;;
*) run=pages cache=.pytest_cache/browser ;;
esac
echo "$run ran with $*"
mkdir -p $cache/v/cache
echo '{}' > $cache/v/cache/lastfailed
exit $(cat $run)
"""


@pytest.mark.parametrize(
    ("others", "pages", "code", "listed"),
    [(0, 0, 0, True), (1, 0, 1, True), (0, 1, 1, True), (3, 1, 3, False), (1, 2, 2, False)],
)
def test_both_runs_are_shown_and_an_end_of_pytest_itself_leaves_no_list(
    tmp_path: Path, others: int, pages: int, code: int, listed: bool
) -> None:
    for folder in ("tests", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests" / "run_all.sh", tmp_path / "tests")
    for program in ("pytest", "python"):
        (tmp_path / ".venv/bin" / program).write_text(PYTEST)
        (tmp_path / ".venv/bin" / program).chmod(0o755)
    (tmp_path / "others").write_text(str(others))
    (tmp_path / "pages").write_text(str(pages))
    done = subprocess.run(
        [tmp_path / "tests/run_all.sh", "--soak", "only"],
        capture_output=True,
        text=True,
        check=False,
    )
    first, second = done.stdout.splitlines()
    assert done.returncode == code
    assert first.startswith("others ran with")
    assert second.startswith("pages ran with")
    assert first.endswith("--soak only")
    assert second.endswith("--soak only")
    lists = [tmp_path / ".pytest_cache" / part / "v/cache/lastfailed" for part in ("", "browser")]
    assert [one.exists() for one in lists] == [listed, listed]
