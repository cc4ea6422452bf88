"""Processes that issue ids at the same time, with clocks set back and restarts."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path

from deploy.local.layout import REPOSITORY

PROCESSES, LIVES, BATCHES, SIZE = 8, 3, 10, 2_000


def test_eight_processes_with_clocks_set_back_issue_no_id_twice(
    ledger_database: str, tmp_path: Path
) -> None:
    shape = [str(one) for one in (LIVES, BATCHES, SIZE)]
    files = [tmp_path / f"{number}.ids" for number in range(PROCESSES)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.producer.ids.issuer", ledger_database, *shape, str(file)],
            cwd=REPOSITORY,
        )
        for file in files
    ]
    assert [one.wait(100) for one in running] == [0] * PROCESSES
    issued = array("q")
    for file in files:
        issued.frombytes(file.read_bytes())
    assert len(issued) == PROCESSES * LIVES * BATCHES * SIZE
    assert len(set(issued)) == len(issued)
