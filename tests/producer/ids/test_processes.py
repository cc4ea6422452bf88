"""Processes that issue ids at the same time, with clocks set back and restarts."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

PROCESSES, LIVES, BATCHES, SIZE = 8, 3, 10, 2_000


@pytest.mark.soak(
    small="tests/producer/ids/test_generator.py::test_a_restart_with_the_clock_set_back_begins_at_the_mark"
)
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
