"""`hongyan bench fleet`: all processes of a platform under steady traffic for long; what grows meanwhile.

Two workers, a recovery, receipts, a relay, a look-back service, a gateway and a console run on the local
stack, with a provider that refuses, resets connections and sends receipts. A business sends by client,
outbox, look-back and gateway, some of it rolled back; an operator reads the console.

    memory    growth of a process's resident memory from the second quarter of the run to the last one
    files     open files and sockets, likewise; threads, too
    lost      notifications that the business was promised and that have not ended in the ledger
    doubled   deliveries that the provider accepted twice
    rolled back   deliveries in the ledger of what the business rolled back

The first quarter is not judged: caches and pools fill, and each process meets each case for the first time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import psycopg

from benchmarks.fleet_processes import FleetProcesses, ProcessUsage, platform_on
from benchmarks.fleet_traffic import ROLLED_BACK, FleetTraffic, business_on
from benchmarks.ground import Servers
from benchmarks.meter import judged_ratio

WANTED_MIB: Final = 8.0
WANTED_FILES: Final = 8
WANTED_THREADS: Final = 2
_SAMPLE_S: Final = 5.0
_QUARTERS: Final = 4
_SETTLED_S: Final = 180.0
_ENDED: Final = ("SENT", "DELIVERED", "UNDELIVERED")
_STATES: Final = """
SELECT CASE WHEN biz_id LIKE %s THEN %s ELSE state END AS state, count(*)
  FROM hongyan_deliveries GROUP BY 1"""
"""What the business rolled back counts as a state of its own: it must not make up for a lost one."""


class FleetRunSize(NamedTuple):
    """Size of one run."""

    minutes: float = 60.0
    per_second: float = 100.0


class _Growth(NamedTuple):
    """One process: medians of the second and the last quarter."""

    name: str
    before: ProcessUsage
    after: ProcessUsage

    @property
    def mib(self) -> float:
        """MiB of resident memory."""
        return round(self.after.rss_mib - self.before.rss_mib, 1)


def measure(servers: Servers, *, size: FleetRunSize, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the report."""
    with (
        TemporaryDirectory() as folder,
        business_on(servers) as business,
        platform_on(servers, Path(folder), business.ground) as platform,
    ):
        say("all processes are ready")
        traffic = FleetTraffic(business, platform, size.per_second)
        samples = _watched(platform, traffic, size.minutes * 60, say)
        states = _settled(business.ground.database_url, traffic.promised(), say)
        doubled = len(platform.provider.report().summary.doubled)
    growths = [_growth(name, found) for name, found in samples.items()]
    return _report(size, traffic, growths, states, doubled)


def _watched(
    platform: FleetProcesses, traffic: FleetTraffic, seconds: float, say: Callable[[str], None]
) -> dict[str, list[ProcessUsage]]:
    """Lets the traffic run for so long. Returns the samples of each process."""
    samples: dict[str, list[ProcessUsage]] = {name: [] for name in platform.pids}
    began = said = time.monotonic()
    with traffic:
        while (now := time.monotonic()) < began + seconds:
            time.sleep(_SAMPLE_S)
            traffic.check()
            platform.check()
            for name, pid in platform.pids.items():
                samples[name].append(ProcessUsage.of(pid))
            if now - said >= seconds / _QUARTERS / 3:
                said = now
                memory = ", ".join(f"{n} {one[-1].rss_mib:.0f}" for n, one in samples.items())
                say(f"{(now - began) / 60:.1f} min, {traffic.promised():,} promised; MiB: {memory}")
    traffic.check()
    return samples


def _settled(url: str, promised: int, say: Callable[[str], None]) -> dict[str, int]:
    """Waits until as many deliveries have ended as were promised, for at most three minutes. Returns the
    deliveries by state."""
    until, asked = time.monotonic() + _SETTLED_S, (f"{ROLLED_BACK}-%", ROLLED_BACK)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        while True:
            states = {state: int(count) for state, count in connection.execute(_STATES, asked)}
            if _ended(states) >= promised or time.monotonic() > until:
                say(f"{promised:,} promised; in the ledger: {states}")
                return states
            time.sleep(1)


def _ended(states: Mapping[str, int]) -> int:
    return sum(states.get(one, 0) for one in _ENDED)


def _growth(name: str, samples: Sequence[ProcessUsage]) -> _Growth:
    quarter = max(1, len(samples) // _QUARTERS)
    return _Growth(name, _median(samples[quarter : 2 * quarter]), _median(samples[-quarter:]))


def _median(samples: Sequence[ProcessUsage]) -> ProcessUsage:
    """Returns the medians of all fields."""
    return ProcessUsage(*(statistics.median(one) for one in zip(*samples, strict=True)))


def _report(
    size: FleetRunSize,
    traffic: FleetTraffic,
    growths: Sequence[_Growth],
    states: Mapping[str, int],
    doubled: int,
) -> dict[str, Any]:
    lost = traffic.promised() - _ended(states)
    files = max(one.after.files - one.before.files for one in growths)
    threads = max(one.after.threads - one.before.threads for one in growths)
    bars = [
        *((f"MiB grown, {one.name}", one.mib, WANTED_MIB) for one in growths),
        ("files grown, the most", files, WANTED_FILES),
        ("threads grown, the most", threads, WANTED_THREADS),
        ("lost", lost, 0),
        ("doubled", doubled, 0),
        ("in the ledger, though rolled back", states.get(ROLLED_BACK, 0), 0),
    ]
    return {
        "minutes": size.minutes,
        "per_second": size.per_second,
        "medians": {
            one.name: {
                "second_quarter_mib": one.before.rss_mib,
                "last_quarter_mib": one.after.rss_mib,
                "files": one.after.files,
                "threads": one.after.threads,
            }
            for one in growths
        },
        "promised": traffic.by_way(),
        "states": dict(states),
        "ratios": [judged_ratio(name, value, most, at_most=True) for name, value, most in bars],
    }
