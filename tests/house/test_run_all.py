"""The two runs of all tests beside each other: exit codes, output, and lists of failures (decision 287)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

PYTEST = """#!/bin/bash
case "$*" in
"-m deploy.local"*) echo "$*" >>stack; exit 0 ;;
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
@pytest.mark.parametrize("named", [True, False], ids=["stack_named", "own_stack"])
def test_both_runs_are_shown_and_an_end_of_pytest_itself_leaves_no_list(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: bool,
    others: int,
    pages: int,
    code: int,
    listed: bool,
) -> None:
    monkeypatch.delenv("HONGYAN_STACK_DIR", raising=False)
    if named:
        monkeypatch.setenv("HONGYAN_STACK_DIR", str(tmp_path / "stack_of_another"))
    for folder in ("tests", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for script in ("run_all.sh", "own_stack.sh"):
        shutil.copy(REPOSITORY / "tests" / script, tmp_path / "tests")
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
    orders = (tmp_path / "stack").read_text().splitlines()
    first_order, *last = (one.removeprefix("-m deploy.local ") for one in orders)
    assert first_order == ("up" if named else "up --free-ports")
    assert [one.split()[0] for one in last] == ([] if named else ["down"])
    lists = [tmp_path / ".pytest_cache" / part / "v/cache/lastfailed" for part in ("", "browser")]
    assert [one.exists() for one in lists] == [listed, listed]
