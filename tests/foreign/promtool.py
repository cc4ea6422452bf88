"""promtool, Prometheus's own checker: out of the distribution's package, unpacked and never installed."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from tests.foreign.judges_folder import unpacked_judge

_LIMIT_S = 110


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Runs it. Returns its exit code and everything that it wrote."""
    done = subprocess.run(
        [_program(), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@cache
def _program() -> Path:
    """Skips the test where it cannot be had, and fails it where everything must be."""
    return unpacked_judge("prometheus") / "usr/bin/promtool"
