"""The whole of it: `make chaos SEED=7 MESSAGES=2000` (docs/chaos.md)."""

from __future__ import annotations

import gc
import os
import random
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from deploy.local.layout import REPOSITORY
from deploy.local.stack import Stack, private_stack
from tests.chaos.books import Books
from tests.chaos.judge import judge
from tests.chaos.plan import Plan, extent_of, plan
from tests.chaos.progress import shown_bar
from tests.chaos.report import report, show, write
from tests.chaos.run import chaos_on

REPORTS = REPOSITORY / ".chaos"


@pytest.mark.chaos
def test_no_kill_and_no_outage_loses_or_doubles_anything(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(1_000_000))
    planned = plan(seed, extent_of(os.environ))
    folder = REPORTS / str(seed)
    shutil.rmtree(folder, ignore_errors=True)
    console = Console()
    console.print(f"\nseed {seed}: {planned.deliveries:,} deliveries, {len(planned.faults)} faults")
    with private_stack(tmp_path) as stack:
        books, chaos_s, repeats = _run(stack, planned, folder, console)
        gc.collect()  # Kafka clients that outlive their broker complain of it
    found = judge(books)
    told = report(planned, books, found, seconds=chaos_s, repeats=repeats)
    show(told, write(told, folder), console)
    assert not found.problems, f"{len(found.problems)} broken promises, see {folder}/report.md"


def _run(stack: Stack, planned: Plan, folder: Path, console: Console) -> tuple[Books, float, int]:
    with (
        shown_bar(console, "settled", planned.deliveries) as show_settled,
        chaos_on(
            stack,
            planned,
            folder,
            lambda line: console.print(line, highlight=False),
            show_settled,
        ) as chaos,
    ):
        return chaos.run(), chaos.seconds, chaos.traffic.repeats
