"""The processes of `make test` are forks of one that collected (decision 298): no test is lost to that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

GOOD = "import os\n\ndef test_one(): assert os.getppid() == {parent}\n\ndef test_two(): pass\n"
OURS = 'int(os.environ["COLLECTED_BY"])'


def ran(folder: Path, **modules: str) -> tuple[int, str]:
    """Exit code and output of these test modules in two processes."""
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(text)
    code = (
        "import os, sys; os.environ['COLLECTED_BY'] = str(os.getpid());"
        "from tests.collected import main; sys.exit(main(*sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "2", "--import-mode=importlib", "-ra", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stdout


def test_tests_run_in_forks_of_the_process_that_collected_them(tmp_path: Path) -> None:
    code, shown = ran(tmp_path, good=GOOD.format(parent=OURS))
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
    found, shown = ran(tmp_path, good=GOOD.format(parent="os.getppid()"), bad=text)
    assert found == code, shown
    assert told in shown
