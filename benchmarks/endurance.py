"""What a worker's memory does under a long backlog with one offset stuck, and how long SIGTERM takes.

Part of `hongyan bench worker`; a real `hongyan worker` process, looked at from outside.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.ground import (
    LANE,
    Servers,
    environment_for,
    fresh_database,
    preloaded,
    provider_at,
)
from benchmarks.processes import Program

BACKLOG = 500_000
THREADS = 100
SLOWEST_CALL_MS = 1_000
SAMPLE_S = 1.0
_POLICY = """
[lanes."{lane}"]
threads = {threads}
timeout_ms = {timeout}
accounts = ["{account}", "stuck"]
"""
_CONFIGURATION = """
[accounts.none]
provider = "null"
[accounts.slow]
provider = "webhook"
endpoint = "{slow}"
[accounts.stuck]
provider = "webhook"
endpoint = "{stuck}"
"""


class MemoryGrowth(msgspec.Struct):
    """Resident memory of one worker, MiB, while it works off the backlog behind a stuck offset."""

    settled: int
    first_mib: float
    """After the first twentieth of the backlog."""
    last_mib: float
    max_mib: float
    still_stuck: bool
    """Whether the one call was still under way at the end."""


class Stop(msgspec.Struct):
    """SIGTERM with full lanes."""

    slowest_call_s: float
    seconds: float
    """From the signal to the exit."""
    exit_code: int


def memory(
    servers: Servers, folder: Path, *, backlog: int, say: Callable[[str], None]
) -> MemoryGrowth:
    """Work off `backlog` messages while the first one hangs at its provider."""
    with (
        provider_at(folder, "hanging", hang=1.0) as hanging,
        preloaded(servers, backlog, account="none", first="stuck") as prefix,
        _worker(servers, folder, prefix, "none", 600_000, {"stuck": hanging.url}) as worker,
    ):
        samples: list[float] = []
        while (settled := worker.settled()) < backlog - 1:
            if settled > backlog / 20:
                samples.append(worker.rss_mib())
            if len(samples) % 10 == 1:
                say(f"backlog  {settled:>9,} settled  {samples[-1]:>6.1f} MiB")
            time.sleep(SAMPLE_S)
        samples.append(worker.rss_mib())
        held = worker.in_flight() == 1
        worker.kill()
    return MemoryGrowth(settled, samples[0], samples[-1], max(samples), held)


def stop(servers: Servers, folder: Path) -> Stop:
    """SIGTERM while every thread has a call of SLOWEST_CALL_MS under way and the queue is full."""
    with (
        provider_at(folder, "sluggish", latency_ms=str(SLOWEST_CALL_MS)) as slow,
        preloaded(servers, 10 * THREADS, account="slow") as prefix,
        _worker(servers, folder, prefix, "slow", 10_000, {"slow": slow.url}) as worker,
    ):
        while worker.in_flight() < 2 * THREADS:
            time.sleep(0.01)
        began = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        code = worker.process.wait(60)
        return Stop(SLOWEST_CALL_MS / 1000, round(time.monotonic() - began, 2), code)


@contextmanager
def _worker(
    servers: Servers,
    folder: Path,
    prefix: str,
    account: str,
    timeout_ms: int,
    urls: Mapping[str, str],
) -> Iterator[Program]:
    endpoints = {"slow": "http://127.0.0.1:9/", "stuck": "http://127.0.0.1:9/"} | dict(urls)
    (folder / "hongyan.toml").write_text(_CONFIGURATION.format(**endpoints))
    policy = folder / "endurance.toml"
    policy.write_text(
        _POLICY.format(lane=LANE.name, threads=THREADS, timeout=timeout_ms, account=account)
    )
    with fresh_database(servers.database_url, prefix) as url:
        environment = environment_for(servers, prefix, prefix, url, policy)
        with Program(["worker"], environment, folder / "worker.log") as worker:
            yield worker
