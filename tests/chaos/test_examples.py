"""The examples that kill themselves end well: each by its one command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.local.layout import REPOSITORY


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["lookback", "optimistic"])
def test_the_example_is_killed_and_loses_nothing(name: str) -> None:
    script = REPOSITORY / "examples" / name / "run.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was killed" in done.stdout
