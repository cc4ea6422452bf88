"""The producing side under kills: `make chaos ARGS="-k producing"` (docs/chaos.md)."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from deploy.local.layout import REPOSITORY
from deploy.local.stack import private_stack
from tests.chaos.producing.extent import extent_of
from tests.chaos.producing.journal_run import JournalRun, journal_problems, tellers_on
from tests.chaos.producing.judge import judge
from tests.chaos.producing.run import ProducingRun
from tests.chaos.producing.scene import scene_on
from tests.chaos.progress import shown_bar

REPORTS = REPOSITORY / ".chaos"
EVERY_S = 3.0
"""Mean time between two kills."""


@pytest.mark.chaos
def test_each_committed_transaction_is_sent_once_and_no_other(tmp_path: Path) -> None:
    extent = extent_of(os.environ)
    folder = REPORTS / f"producing-{extent.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    console = Console()
    console.print(
        f"\nseed {extent.seed}: {extent.committed:,} committed, {extent.refused:,} rolled back"
    )
    with (
        private_stack(tmp_path, brokers=3) as stack,
        scene_on(stack, folder) as scene,
        shown_bar(console, "at their end", extent.total) as show,
    ):
        run = ProducingRun(scene, stack, extent, console.print, show, every_s=EVERY_S)
        books = run.run()
    gc.collect()  # Kafka clients that outlive their broker complain of it
    found = judge(books)
    console.print(
        f"{found.committed:,} committed, {found.refused:,} rolled back in {run.seconds:,.0f} s"
    )
    console.print(
        f"kills: {dict(books.kills)}, {run.brokers.kills}; slowest broker {run.brokers.slowest_s:.0f} s"
    )
    console.print(f"outbox {dict(books.outbox)}, look-back {dict(books.lookback)}")
    console.print(f"lost {found.lost}, sent twice {found.doubled}, invented {found.invented}")
    assert not found.problems, "\n".join(found.problems)


@pytest.mark.chaos
def test_what_was_answered_with_yes_is_sent_and_spark_finds_no_loss(tmp_path: Path) -> None:
    extent = extent_of(os.environ)
    folder = REPORTS / f"yeses-{extent.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    console = Console()
    console.print(f"\nseed {extent.seed}: {extent.committed:,} yeses")
    with (
        private_stack(tmp_path, brokers=3) as stack,
        tellers_on(stack, folder) as fleet,
        shown_bar(console, "yeses", extent.committed) as show,
    ):
        run = JournalRun(
            fleet,
            stack,
            seed=extent.seed,
            count=extent.committed,
            every_s=EVERY_S,
            say=console.print,
            show=show,
        )
        books = run.run()
    gc.collect()
    spooled = sum(one.spooled for one in books.yeses)
    console.print(f"{len(books.yeses):,} yeses, {spooled:,} of a spool, in {run.seconds:,.0f} s")
    console.print(
        f"kills: {dict(books.kills)}, {run.brokers.kills}; slowest broker {run.brokers.slowest_s:.0f} s"
    )
    problems = list(journal_problems(books))
    assert not problems, "\n".join(problems)
