"""What the offset tracker costs: per completion, and per commit as a function of runs and of span.

Run: `python -m benchmarks.offsets [--json]`
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence

from dispatcher.kafka import offset_metadata as runs
from dispatcher.kafka.offsets import Offsets

COMPLETIONS = 1_000_000
RUN_COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)
SPANS = (10_000, 100_000, 1_000_000, 10_000_000)
_REPEATS = 5


def completions(count: int = COMPLETIONS) -> dict[str, float]:
    """Register `count` offsets, complete them in random order: µs for one of each."""
    tracker, order = Offsets(0), list(range(count))
    begun = time.perf_counter()
    for offset in order:
        tracker.register(offset, 0.0)
    registered = time.perf_counter()
    random.Random(1).shuffle(order)
    shuffled = time.perf_counter()
    tracker.complete_all(order)
    ended = time.perf_counter()
    assert tracker.watermark == count
    return {
        "register_us": (registered - begun) / count * 1e6,
        "complete_us": (ended - shuffled) / count * 1e6,
    }


def commit_us(run_count: int, run_length: int) -> float:
    """The best of some commits' worth of work, µs, with `run_count` runs of `run_length` offsets."""
    tracker = Offsets(0)
    for run in range(run_count):
        start = run * (run_length + 1)
        tracker.register(start, 0.0)
        last = start + run_length
        tracker.register(last, 0.0)
        tracker.complete(last)
    best = float("inf")
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        runs.encode(0, tracker.runs())
        best = min(best, time.perf_counter() - begun)
    return best * 1e6


def measure() -> dict[str, object]:
    """Everything, as one report."""
    return {
        "completions": COMPLETIONS,
        **completions(),
        "commit_us_by_runs": {str(n): commit_us(n, 10) for n in RUN_COUNTS},
        "commit_us_by_span_at_100_runs": {str(s): commit_us(100, s // 100) for s in SPANS},
    }


def main(arguments: Sequence[str]) -> None:
    """Print the report."""
    report = measure()
    if "--json" in arguments:
        print(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
