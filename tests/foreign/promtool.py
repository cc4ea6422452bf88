"""promtool, Prometheus's own checker: out of the distribution's package, unpacked and never installed."""

from __future__ import annotations

import fcntl
import subprocess
from functools import cache
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.stack import shared_stack
from deploy.local.system import unpacked
from tests.foreign.node_programs import give_up

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
    root = shared_stack(print).layout.root / "foreign"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "prometheus.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            return unpacked("prometheus", root / "prometheus", print) / "usr/bin/promtool"
        except StackError as exc:
            give_up(str(exc))
            raise
