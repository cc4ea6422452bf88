"""`make faults`: every adapter, on real servers, against a provider that fails every fifth call.

    MESSAGES=5000 SEED=7 ONLY=tencent_sms,smtp WORKERS=2 SWITCHED=1 python -m tests.chaos.faults

Exits 1 on any broken promise (docs/faults.md).
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from deploy.local.layout import REPOSITORY
from tests.chaos.faults_plan import MESSAGES, Extent
from tests.chaos.faults_report import report, show, write
from tests.chaos.faults_run import faults_on
from tests.services import started

REPORTS: Final = REPOSITORY / ".faults"
_DONE, _PROBLEMS, _USAGE = 0, 1, 2


def extent_of(environment: Mapping[str, str]) -> Extent:
    """MESSAGES, SEED, ONLY and SWITCHED, where given; raises ValueError for a number that is none."""
    only = environment.get("ONLY", "").replace(",", " ").split()
    return Extent(
        messages=int(environment.get("MESSAGES") or MESSAGES),
        seed=int(environment.get("SEED") or random.randrange(1_000_000)),
        only=tuple(dict.fromkeys(only)),
        switched=environment.get("SWITCHED", "") not in ("", "0"),
    )


def main() -> int:
    """One run; the exit code."""
    console = Console()
    try:
        extent = extent_of(os.environ)
        workers = int(os.environ.get("WORKERS") or 2)
    except ValueError as exc:
        console.print(f"error: {exc}", markup=False)
        return _USAGE
    folder = REPORTS / str(extent.seed)
    shutil.rmtree(folder, ignore_errors=True)
    told = _run(extent, workers, folder, console)
    show(told, write(told, folder), console)
    return _PROBLEMS if told["problems"] else _DONE


def _run(extent: Extent, workers: int, folder: Path, console: Console) -> dict[str, Any]:
    console.print(f"seed {extent.seed}: {extent.messages:,} deliveries through each adapter")
    services = started()
    try:
        services.require_all()
        with faults_on(services.stack, extent, folder, console.print) as run:
            found = run.run(workers)
        return report(found, run.troubles, extent, run.seconds)
    finally:
        services.leave()


if __name__ == "__main__":
    sys.exit(main())
