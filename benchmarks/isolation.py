"""`hongyan bench isolation`: what one lane feels of other lanes' broken providers, in one run, as ratios.

One real worker serves three lanes, each with an account and a provider of its own. Every variant has the
same traffic; only what the two other providers do differs:

    quiet       all three answer
    rejecting   one hangs, one refuses every message for good (400): its lane goes on at full speed
    limiting    one hangs, one refuses every call for now (429): its account is shut

    load        RATE a second on the lane that is measured (below saturation), SICK_RATE on each other one:
                p99 from a notification's making to its provider
    backlog     then BURST messages at once on the measured lane, the others go on: throughput

The others' records pile up meanwhile, so that their lanes are full and their partitions paused. Rounds are
interleaved, every run has processes and a database of its own.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.settings import KafkaSettings
from benchmarks.ground import (
    LANE,
    Servers,
    environment_for,
    fresh_database,
    notification,
    produce,
    provider_at,
    topics,
)
from benchmarks.processes import Program
from message.vocabulary import Lane
from simulator import Faults, Simulator

ROUNDS: Final = 5
RATE: Final = 500
"""A second; about a seventh of what the lane does at saturation on two cores."""
SICK_RATE: Final = 50
"""Little, so that what a lane which stands still does not cost is no gain to speak of."""
SETTLE_S: Final = 3.0
"""Under load before it is measured: connections are made, and calls hang."""
LOAD_S: Final = 12.0
BURST: Final = 16_000
WARM: Final = 3_000
SPAN: Final = 11_000
"""Of the burst, after the warm ones: what is timed. The rest keeps the end as full as the middle."""
SLOWER: Final = 1.1
FEWER: Final = 0.9

HANGING, REFUSING = Lane("webhook", "verification"), Lane("webhook", "marketing")
LANES: Final = (LANE, HANGING, REFUSING)
_WELL: Final = Faults(latency_ms="10")
_HANG: Final = Faults(hang=1.0)
VARIANTS: Final[Mapping[str, tuple[Faults, Faults]]] = {
    "quiet": (_WELL, _WELL),
    "rejecting": (_HANG, Faults(latency_ms="10", errors={"400": 1.0})),
    "limiting": (_HANG, Faults(latency_ms="10", errors={"429": 1.0})),
}
"""What the providers of the other two lanes do."""
_TICK_S: Final = 0.002
_POLL_S: Final = 0.2
_TIMEOUT_S: Final = 60.0
_MS: Final = 1_000

_POLICY = f"""
[lanes."{LANE.name}"]
threads = 100
accounts = ["well"]
[lanes."{HANGING.name}"]
timeout_ms = 2_000
max_in_flight = 200
accounts = ["hanging"]
[lanes."{REFUSING.name}"]
max_in_flight = 200
accounts = ["refusing"]
"""
_ACCOUNT = """
[accounts.{name}]
provider = "webhook"
endpoint = "{url}"
"""
_NAMES: Final = {LANE: "well", HANGING: "hanging", REFUSING: "refusing"}


class IsolationRun(msgspec.Struct):
    """What the measured lane did in one run; times in milliseconds from making to provider."""

    per_second: float
    p50_ms: float
    p99_ms: float


class Traffic:
    """Makes notifications and remembers when, by their id."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        settings = KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix)
        self._producer = kafka.producer(settings)
        self._prefix = prefix
        self._number = 0

    def steady(self, seconds: float, rates: Mapping[Lane, int]) -> dict[str, int]:
        """So many a second on each lane, evenly; the ids of the measured lane, and when each was made."""
        made: dict[str, int] = {}
        sent = dict.fromkeys(rates, 0)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            for lane, rate in rates.items():
                made |= self._make(lane, int(passed * rate) - sent[lane])
                sent[lane] = int(passed * rate)
            self._producer.poll(0)
            time.sleep(_TICK_S)
        return made

    def burst(self, count: int) -> dict[str, int]:
        """All at once on the measured lane."""
        made = self._make(LANE, count)
        self._producer.flush(_TIMEOUT_S)
        return made

    def _make(self, lane: Lane, count: int) -> dict[str, int]:
        made = {}
        for _ in range(count):
            self._number += 1
            # Every second one names its account: such a one passes others by while that may not send.
            account = _NAMES[lane] if self._number % 2 else None
            item = notification(self._number, account, lane)
            produce(self._producer, lane.topic(self._prefix), item)
            if lane is LANE:
                made[item.id] = item.created_at
        return made


def measure(
    servers: Servers, *, rounds: int = ROUNDS, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Run every variant `rounds` times; raises RuntimeError where what was sent did not arrive."""
    results: dict[str, list[IsolationRun]] = {name: [] for name in VARIANTS}
    names = list(VARIANTS)
    for number in range(rounds):
        first = number % len(names)  # none always goes first
        for name in names[first:] + names[:first]:
            with TemporaryDirectory() as folder:
                found = _run(servers, Path(folder), *VARIANTS[name])
            results[name].append(found)
            say(f"round {number + 1}/{rounds}  {name:10} {_line(found)}")
    return _report(results)


def _run(servers: Servers, folder: Path, hanging: Faults, refusing: Faults) -> IsolationRun:
    faults = {LANE: _WELL, HANGING: hanging, REFUSING: refusing}
    with ExitStack() as stack:
        providers = {
            lane: stack.enter_context(
                provider_at(folder, _NAMES[lane], **msgspec.structs.asdict(of_lane))
            )
            for lane, of_lane in faults.items()
        }
        prefix = stack.enter_context(topics(servers, LANES))
        worker = stack.enter_context(_worker(servers, folder, prefix, providers, stack))
        worker.await_ready()
        load, burst = _drive(Traffic(servers, prefix), providers[LANE])
    for lane, of_lane in faults.items():
        _check_sick(providers[lane], of_lane)
    arrived = _arrivals(providers[LANE])
    return IsolationRun(_throughput(arrived, burst), *_latency(arrived, load))


def _worker(
    servers: Servers,
    folder: Path,
    prefix: str,
    providers: Mapping[Lane, Simulator],
    stack: ExitStack,
) -> Program:
    accounts = (_ACCOUNT.format(name=_NAMES[lane], url=p.url) for lane, p in providers.items())
    (folder / "hongyan.toml").write_text("".join(accounts))
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    name = f"b{uuid.uuid4().hex[:12]}"
    url = stack.enter_context(fresh_database(servers.database_url, name))
    environment = environment_for(servers, prefix, name, url, policy, LANES)
    return Program(["worker"], environment, folder / "worker.log")


def _drive(traffic: Traffic, provider: Simulator) -> tuple[dict[str, int], dict[str, int]]:
    """Load, then the burst while the other lanes' load goes on: what was made on the measured lane."""
    rates = {LANE: RATE, HANGING: SICK_RATE, REFUSING: SICK_RATE}
    before = traffic.steady(SETTLE_S, rates)
    load = traffic.steady(LOAD_S, rates)
    burst = traffic.burst(BURST)
    wanted = len(before) + len(load) + BURST
    others = {lane: rate for lane, rate in rates.items() if lane is not LANE}
    deadline = time.monotonic() + _TIMEOUT_S
    while provider.report(summary_only=True).summary.accepted < wanted:
        if time.monotonic() >= deadline:
            raise RuntimeError("what was sent on the measured lane did not arrive")
        traffic.steady(_POLL_S, others)
    return load, burst


def _arrivals(provider: Simulator) -> dict[str, int]:
    """When each notification first came to the provider, epoch milliseconds."""
    arrived: dict[str, int] = {}
    for record in provider.records():
        arrived.setdefault(record.id, record.at_ms)
    return arrived


def _check_sick(provider: Simulator, faults: Faults) -> None:
    """A provider that was to fail and was asked nothing would have broken nobody's lane."""
    if faults is not _WELL and all(record.answer == "200" for record in provider.records()):
        raise RuntimeError(f"{provider.url} was to fail and did not")


def _latency(arrived: Mapping[str, int], made: Mapping[str, int]) -> tuple[float, float]:
    """(median, 99th percentile)."""
    took = sorted(arrived[id_] - at for id_, at in made.items())
    return float(statistics.median(took)), float(took[int(len(took) * 0.99)])


def _throughput(arrived: Mapping[str, int], made: Iterable[str]) -> float:
    times = sorted(arrived[id_] for id_ in made)
    return round(SPAN / (times[WARM + SPAN - 1] - times[WARM - 1]) * _MS, 1)


def _report(results: Mapping[str, Sequence[IsolationRun]]) -> dict[str, Any]:
    medians = {
        name: {
            field: statistics.median(getattr(run, field) for run in runs)
            for field in IsolationRun.__struct_fields__
        }
        for name, runs in results.items()
    }
    ratios = []
    for name in VARIANTS:
        if name != "quiet":
            ratios.append(_ratio(results, name, "per_second", FEWER, at_most=False))
            ratios.append(_ratio(results, name, "p99_ms", SLOWER, at_most=True))
    load = {"per_second": RATE, "others_per_second": SICK_RATE, "seconds": LOAD_S}
    return {"load": load, "burst": BURST, "medians": medians, "ratios": ratios}


def _ratio(
    results: Mapping[str, Sequence[IsolationRun]],
    name: str,
    field: str,
    wanted: float,
    *,
    at_most: bool,
) -> dict[str, Any]:
    pairs = zip(results[name], results["quiet"], strict=True)
    rounds = [round(getattr(a, field) / getattr(b, field), 3) for a, b in pairs]
    median = round(statistics.median(rounds), 3)
    return {
        "ratio": f"{field}, {name} / quiet",
        "median": median,
        "wanted": wanted,
        "at_most": at_most,
        "holds": median <= wanted if at_most else median >= wanted,
        "rounds": rounds,
    }


def _line(found: IsolationRun) -> str:
    return (
        f"{found.per_second:>9,.0f} messages/s  p50 {found.p50_ms:>5.0f} ms  "
        f"p99 {found.p99_ms:>5.0f} ms"
    )
