"""A process that is stopped, and stands still when the call returns."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.harness.waiting import await_


def stop(pid: int) -> None:
    """SIGSTOP. Returns once all of its threads stand still, or have ended: the signal itself waits for
    none, and on a busy machine a thread may still answer somebody or mark a row."""
    os.kill(pid, signal.SIGSTOP)
    await_(lambda: _stands_still(pid), what=f"all threads of process {pid} stand still")


def _stands_still(pid: int) -> bool:
    try:
        stats = [(one / "stat").read_text() for one in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # a thread ended in between
        return False
    return all(stat.rpartition(") ")[2].startswith(("T", "Z")) for stat in stats)
