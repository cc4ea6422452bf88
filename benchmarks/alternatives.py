"""Figures behind decision 132: simpler parts, each measured beside the part that is in use.

    python -m benchmarks.alternatives [--json]

hand-over   a lane's queue beside `queue.SimpleQueue` with a semaphore for the slots, in turns
threads     memory and start of a lane's thread that waits for its first call
health      memory and start of the health pages: the standard library's server, and Litestar on uvicorn
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from sending.runtime.work_queue import SlottedQueue

ITEMS: Final = 60_000
BURST: Final = 40
"""Items that are put together, as intake puts the calls of a claim."""
THREADS: Final = 100
ROUNDS: Final = 5
_WORK: Final = 400
"""Steps of Python for an item: about the start of a call."""
_GAP_S: Final = 0.002
_PARKED: Final = 500
_HTTP = "from sending.runtime.health import HealthServer"
_LITESTAR = "import litestar, uvicorn"


class InUse:
    """The queue of `LanePool`."""

    def __init__(self) -> None:
        self.queue: SlottedQueue[float | None] = SlottedQueue(THREADS)
        self.put = self.queue.put

    def serve(self, work: Callable[[float], None]) -> None:
        """Takes items until it takes None."""
        waiter = self.queue.waiter()
        while (item := self.queue.take(waiter)) is not None:
            work(item)
            self.queue.free()
        self.queue.free()


class Simple:
    """`SimpleQueue` and a semaphore. It has no way for an answered call to pass a full lane."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[float | None] = SimpleQueue()
        self.slots = threading.Semaphore(THREADS)
        self.put = self.queue.put

    def serve(self, work: Callable[[float], None]) -> None:
        """Takes items until it takes None."""
        while (item := self.queue.get()) is not None:
            with self.slots:
                work(item)


def hand_over(made: Callable[[], InUse | Simple]) -> dict[str, float]:
    """Returns CPU and wait of an item in µs, and the number of threads that did 1 % of the work."""
    queue, waits, served = made(), [], Counter[int]()

    def work(put_at: float) -> None:
        waits.append(time.perf_counter() - put_at)
        served[threading.get_ident()] += 1
        sum(range(_WORK))

    threads = [threading.Thread(target=queue.serve, args=(work,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    cpu = time.process_time()
    for _ in range(ITEMS // BURST):
        for _ in range(BURST):
            queue.put(time.perf_counter())
        time.sleep(_GAP_S)
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    return {
        "cpu_us": (time.process_time() - cpu) / ITEMS * 1e6,
        "wait_us": statistics.mean(waits) * 1e6,
        "wait_p99_us": statistics.quantiles(waits, n=100)[98] * 1e6,
        "threads_at_work": sum(count >= ITEMS // 100 for count in served.values()),
    }


def parked_threads() -> dict[str, float]:
    """Returns the resident memory and the start of one thread that waits in a lane's queue."""
    queue = InUse()
    before, begun = _resident_kib(), time.perf_counter()
    threads = [threading.Thread(target=queue.serve, args=(lambda _: None,)) for _ in range(_PARKED)]
    for thread in threads:
        thread.start()
    while len(queue.queue._waiting) < _PARKED:  # noqa: SLF001 (the one place that knows who waits)
        time.sleep(0.001)
    taken = {
        "resident_kib": (_resident_kib() - before) / _PARKED,
        "start_us": (time.perf_counter() - begun) / _PARKED * 1e6,
    }
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    return taken


def imported(statement: str) -> dict[str, float]:
    """Returns what the statement adds to a fresh interpreter that has the worker's own modules."""
    program = f"""
import json, time, dispatcher.worker
from benchmarks.alternatives import _resident_kib
before, begun = _resident_kib(), time.perf_counter()
{statement}
print(json.dumps([time.perf_counter() - begun, _resident_kib() - before]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    seconds, kib = json.loads(ran.stdout)
    return {"start_ms": seconds * 1e3, "resident_mib": kib / 1024}


def measure() -> dict[str, Any]:
    """Returns every figure: medians of rounds in turns."""
    kinds: dict[str, Callable[[], InUse | Simple]] = {"in_use": InUse, "simple_queue": Simple}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, made in kinds.items():
            rounds[name].append(hand_over(made))
    return {
        "hand_over": {name: _medians(taken) for name, taken in rounds.items()},
        "parked_thread": parked_threads(),
        "health": {
            "standard_library": _medians([imported(_HTTP) for _ in range(ROUNDS)]),
            "litestar_uvicorn": _medians([imported(_LITESTAR) for _ in range(ROUNDS)]),
        },
    }


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in rounds), 2) for name in rounds[0]}


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0])


def main() -> None:
    """Prints the report."""
    report = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(report))
        return
    for name, figures in report.items():
        print(name)
        for part, figure in figures.items():
            print(f"  {part}: {figure}")


if __name__ == "__main__":
    main()
