"""Many clients at once: each asks, waits, and asks again; the times of the answers."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

CLIENTS: Final = 20
EVERY_S: Final = 1.0
"""Time between two questions of one client."""
_WARM: Final = 3
"""First answers of each client that are not counted: connections, caches."""


class AnswerTimes(msgspec.Struct, frozen=True):
    """Times of one kind of question, in milliseconds. `busy`: all clients ask without a pause. A refusal,
    such as of a search that took too long, counts among the failures."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    most_ms: float
    answers: int
    busy_p95_ms: float
    busy_per_second: float
    failures: int = 0
    busy_failures: int = 0
    failed_by: str = ""
    """Text of the first failure."""


def _nothing() -> None:
    pass


def ask_at_once(
    ask: Callable[[random.Random], object],
    *,
    clients: int = CLIENTS,
    seconds: float = 5.0,
    every_s: float = EVERY_S,
    seed: int = 1,
    began: Callable[[], None] = _nothing,
    ended: Callable[[], None] = _nothing,
) -> AnswerTimes:
    """Lets the clients ask for some seconds once in `every_s`, then half as long without a pause. Calls
    `began` before the first counted question with pauses, and `ended` after the last one's answer."""
    paced, failed, _took = _run(ask, clients, seconds, every_s, seed, began)
    ended()
    busy, busy_failed, took = _run(ask, clients, seconds / 2, 0.0, seed + 1)
    p50, p95, p99 = (_percentile(paced, share) for share in (50, 95, 99))
    return AnswerTimes(
        p50,
        p95,
        p99,
        round(max(paced), 1),
        len(paced),
        _percentile(busy, 95),
        round(len(busy) / took, 1),
        len(failed),
        len(busy_failed),
        next(iter(failed + busy_failed), ""),
    )


def _run(
    ask: Callable[[random.Random], object],
    clients: int,
    seconds: float,
    every_s: float,
    seed: int,
    at_start: Callable[[], None] = _nothing,
) -> tuple[list[float], list[str], float]:
    """Returns the answers' times in milliseconds, what failures said, and the seconds that it took."""
    ready = threading.Barrier(clients, action=at_start)
    began: list[float] = []

    def client(number: int) -> tuple[list[float], list[str]]:
        pick = random.Random(seed * 1_000 + number)
        took, failures = list[float](), list[str]()
        for _ in range(_WARM):
            _timed(ask, pick)
        ready.wait()
        start = time.monotonic()
        began.append(start)
        time.sleep(every_s * number / clients)
        while time.monotonic() - start < seconds:
            asked = time.monotonic()
            ms, failure = _timed(ask, pick)
            took.append(ms)
            failures += [failure] if failure else []
            if every_s:
                time.sleep(max(0.0, every_s - (time.monotonic() - asked)))
        return took, failures

    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(client, range(clients)))
    spent = time.monotonic() - min(began)
    failed = [one for _, failures in found for one in failures]
    return [ms for took, _ in found for ms in took], failed, spent


def _timed(ask: Callable[[random.Random], object], pick: random.Random) -> tuple[float, str]:
    """Returns the milliseconds of one answer, and what its failure said."""
    began, failure = time.perf_counter(), ""
    try:
        ask(pick)
    except Exception as exc:  # a failure of any kind is counted as one
        failure = f"{type(exc).__name__}: {exc}"
    return (time.perf_counter() - began) * 1_000, failure


def _percentile(values: list[float], share: int) -> float:
    if len(values) < 2:
        return round(values[0], 1) if values else 0.0
    return round(statistics.quantiles(values, n=100, method="inclusive")[share - 1], 1)
