"""Measures a running loop from inside its process: messages a second and CPU a message."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

_SAMPLE_S = 0.005
_PAGE_KIB = 1024


class Stretch(msgspec.Struct):
    """Figures of one stretch of one run."""

    messages: int
    seconds: float
    cpu_us_per_message: float
    per_second: float
    rss_mib: float


class LoopMeter:
    """Watches `count` from its own thread; leaves out the first `warm` messages, measures `span`."""

    def __init__(self, count: Callable[[], int], warm: int, span: int, end: Callable[[], None]):
        self.result: Stretch | None = None
        self._count, self._warm, self._span, self._end = count, warm, span, end
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def _run(self) -> None:
        first = self._await(self._warm)
        began, cpu = time.perf_counter(), time.process_time()
        last = self._await(first + self._span)
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        messages = last - first
        self.result = Stretch(
            messages=messages,
            seconds=round(seconds, 3),
            cpu_us_per_message=round(used / messages * 1e6, 1),
            per_second=round(messages / seconds, 1),
            rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _PAGE_KIB, 1),
        )
        self._end()

    def _await(self, wanted: int) -> int:
        while (seen := self._count()) < wanted:
            time.sleep(_SAMPLE_S)
        return seen


def resident_mib(pid: int | None = None) -> float:
    """Returns the resident memory of a process now, in MiB; None: of this one."""
    pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / _PAGE_KIB / _PAGE_KIB


def judged_ratio(name: str, value: float, wanted: float, *, at_most: bool) -> dict[str, Any]:
    """Returns the line of a report: the value beside its bar, and whether it holds."""
    holds = value <= wanted if at_most else value >= wanted
    return {
        "ratio": name,
        "median": round(value, 3),
        "wanted": wanted,
        "holds": holds,
        "at_most": at_most,
    }
