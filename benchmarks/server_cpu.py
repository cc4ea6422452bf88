"""CPU time of this process and of the local stack's servers, by program."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.local.process import family

OWN: Final = "own"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12  # fields of /proc/PID/stat after the program's name


class CpuMeter:
    """Counts from its making on. A process that ended meanwhile counts no more: its time is lost."""

    def __init__(self, servers: Sequence[int]) -> None:
        self._servers = servers
        self._began = self._read()

    def per_row(self, rows: int) -> dict[str, float]:
        """Returns microseconds of CPU a row, by program; `own` is this process."""
        now = self._read()
        spent: defaultdict[str, float] = defaultdict(float)
        for (pid, program), seconds in now.items():
            spent[program] += seconds - self._began.get((pid, program), 0.0)
        return {program: round(s / rows * 1e6, 1) for program, s in spent.items() if s > 0}

    def _read(self) -> dict[tuple[int, str], float]:
        found = {(os.getpid(), OWN): time.process_time()}
        for pid in {member for server in self._servers for member in family(server)}:
            try:
                head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            except OSError:
                continue
            fields = tail.split()
            ticks = int(fields[_USER]) + int(fields[_SYSTEM])
            found[pid, head.partition("(")[2]] = ticks * _TICK_S
        return found
