"""promtool, Prometheus's own checker: out of the distribution's package, unpacked and never installed."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.system import unpacked
from tests.foreign.judges_folder import judges_folder
from tests.services import give_up

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
    with judges_folder("prometheus") as root:
        try:
            return unpacked("prometheus", root / "prometheus", print) / "usr/bin/promtool"
        except StackError as exc:
            give_up(str(exc))
            raise
