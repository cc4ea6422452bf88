"""Snowflake ids: how fast one process makes them beside a bare loop, and 8 processes with clocks set back.

    hongyan bench ids
    python -m benchmarks.ids [--ids 20000000] [--database-url URL] [--json]

The bare loop under a lock makes one number a turn: shift, or, append. Both are measured in turns in one
run. Then 8 processes issue all ids. Each sets its database's clock back by 10 s in the middle of each of
its lives, and ends two lives of three as after a kill. Equal ids are counted over all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from deploy.local.layout import REPOSITORY
from idempotency.sql_ledger import clock_of, upgrade
from producer.ids.generator import IdGenerator
from producer.ids.worker_numbers import WorkerNumbers

WANTED_PER_S: Final = 2_000_000
PROCESSES: Final = 8
LIVES: Final = 3
BATCH: Final = 10_000
ROUNDS: Final = 5
_MEASURED: Final = 2_000_000


def measure(url: str, count: int) -> dict[str, Any]:
    """Returns the report."""
    settings = Settings(database=DatabaseSettings(url=url))
    upgrade(settings)
    medians, ratio = _rates(url)
    equal, issued = _equal(url, count)
    rate = medians["batches"]["ids_per_second"]
    return {
        "medians": medians,
        "ratios": [
            {"ratio": "ids a second in batches", "median": rate, "wanted": WANTED_PER_S}
            | {"holds": rate >= WANTED_PER_S},
            {"ratio": "batches ÷ bare loop", "median": ratio, "wanted": 1, "holds": ratio >= 1},
            {"ratio": f"equal ids of {issued:,}", "median": equal, "wanted": 0, "at_most": True}
            | {"holds": not equal},
        ],
    }


def _rates(url: str) -> tuple[dict[str, dict[str, float]], float]:
    """Returns the rates of each way, and the ratio of batches to the bare loop round by round."""
    database = Database(database_url(url), pool_size=2)
    generator = IdGenerator(WorkerNumbers(database, clock_of(database)))
    generator.next_id()
    ways: dict[str, Callable[[], None]] = {
        "bare_loop": lambda: _bare(_MEASURED),
        "batches": lambda: _batches(generator),
        "one_by_one": lambda: _singly(generator),
    }
    found = [{name: _timed(way) for name, way in ways.items()} for _ in range(ROUNDS)]
    generator.close()
    database.close()
    medians = {
        name: {"ids_per_second": statistics.median(one[name] for one in found)} for name in ways
    }
    return medians, statistics.median(one["batches"] / one["bare_loop"] for one in found)


def _timed(way: Callable[[], None]) -> float:
    began = time.perf_counter()
    way()
    return round(_MEASURED / (time.perf_counter() - began))


def _bare(count: int) -> None:
    lock, made, number = threading.Lock(), [], 0
    for _ in range(count):
        with lock:
            number += 1
            made.append((number >> 12) << 22 | 5 << 12 | number & 4095)


def _batches(generator: IdGenerator) -> None:
    for _ in range(_MEASURED // BATCH):
        generator.batch(BATCH)


def _singly(generator: IdGenerator) -> None:
    for _ in range(_MEASURED):
        generator.next_id()


def _equal(url: str, count: int) -> tuple[int, int]:
    """Returns how many ids are equal to another one, and how many there are."""
    batches = max(2, -(-count // (PROCESSES * LIVES * BATCH)))
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.ids" for number in range(PROCESSES)]
        shape = [str(one) for one in (LIVES, batches, BATCH)]
        command = [sys.executable, "-m", "tests.producer.ids.issuer", url, *shape]
        running = [subprocess.Popen([*command, str(file)], cwd=REPOSITORY) for file in files]
        if any([one.wait() for one in running]):  # noqa: C419 - each is waited for
            raise SystemExit("a process that issues ids failed; see its output above")
        return _doubles(files)


def _doubles(files: Iterable[Path]) -> tuple[int, int]:
    parts = []
    for file in files:
        part = array("q")
        part.frombytes(file.read_bytes())
        parts.append(array("q", sorted(part)))
    equal = sum(one == other for one, other in pairwise(merge(*parts)))
    return equal, sum(map(len, parts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report. Returns 1 if a figure is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.ids")
    parser.add_argument("--ids", type=int, default=20_000_000)
    parser.add_argument("--database-url", default="", help="default: an SQLite file")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        url = given.database_url or f"sqlite:///{Path(folder) / 'ids.db'}"
        report = measure(url, given.ids)
    if given.json:
        print(json.dumps(report))
    else:
        for name, one in report["medians"].items():
            print(f"{name:<12} {one['per_second']:>12,.0f} ids/s")
        for one in report["ratios"]:
            print(f"{one['ratio']}: {one['median']:,.2f}  {'holds' if one['holds'] else 'MISSED'}")
    return int(not all(one["holds"] for one in report["ratios"]))


if __name__ == "__main__":
    sys.exit(main())
