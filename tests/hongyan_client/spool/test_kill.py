"""kill -9 while a process keeps and drains: every record that was answered goes, in order per key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deploy.local.layout import REPOSITORY
from hongyan_client.spool.spool import Spool
from tests.hongyan_client.spool.keeper import KEYS, FileKafka

KILLS = (1, 40, 150)
"""Each life is killed after so many answers."""


def live_and_die(folder: Path, file: Path, first: int, answers: int) -> list[int]:
    """Returns the numbers that were answered before the kill."""
    command = [sys.executable, "-m", "tests.hongyan_client.spool.keeper"]
    arguments = [str(folder), str(file), str(first)]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(answers)]
        process.kill()
        rest = process.stdout.read().split(b"\n")[:-1]
    return answered + [int(one) for one in rest]


def test_kills_lose_no_answered_record_and_keep_the_order(tmp_path: Path) -> None:
    folder, file = tmp_path / "spool", tmp_path / "kafka"
    answered: list[int] = []
    for life, kill in enumerate(KILLS):
        answered += live_and_die(folder, file, life * 1_000_000, kill)
    spool = Spool(folder, FileKafka(file))
    assert spool.salvage is None
    assert spool.missing == 0
    assert spool.drain(30) == 0
    spool.close(10)
    arrived = [line.split() for line in file.read_text().splitlines()]
    assert set(answered) <= {int(number) for _, number in arrived}
    for key in range(KEYS):
        numbers = [int(number) for found, number in arrived if found == str(key)]
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
