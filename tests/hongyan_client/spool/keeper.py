"""A process that keeps and drains records until it is killed. Its Kafka is a file.

    python -m tests.hongyan_client.spool.keeper FOLDER FILE FIRST

It prints each number once `keep` has returned.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future
from pathlib import Path

from hongyan_client.records import Acknowledged, Record
from hongyan_client.spool.spool import Spool
from tests.hongyan_client.spool.making import NEVER, record

KEYS = 5


class FileKafka:
    """Appends key and value of each record to a file, then acknowledges it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def publish(self, one: Record, deadline_s: float) -> Future[Acknowledged]:
        os.write(self._file, (one.key or b"") + b" " + one.value + b"\n")
        future: Future[Acknowledged] = Future()
        future.set_result(Acknowledged(one.topic, 0, 0, 0))
        return future


def keep_until_killed(folder: Path, file: Path, first: int) -> None:
    spool = Spool(folder, FileKafka(file))
    number = first
    while True:
        spool.keep(record(number, str(number % KEYS)), NEVER)
        os.write(1, f"{number}\n".encode())
        number += 1


if __name__ == "__main__":
    keep_until_killed(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
