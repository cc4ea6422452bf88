"""`hongyan bench ordered`: an ordered lane under kills, beside the same lane undisturbed, in one run.

    undisturbed   three workers and two recoveries work a preloaded topic off: half of it over few ordering
                  keys, half without a key, all in one lane
    disturbed     the same, while processes are killed with -9 and started again, the database is away
                  twice, and the provider refuses a part of the calls (425, 429)
    look          one look of recovery at a lane with 100 and with 100,000 rows behind one key

Judged are the provider's own book and the ledger: the order of each key, what was lost or doubled, how
fast ordered deliveries go once the last fault is over, and how long anything that was due stood there while
nothing was wrong (benchmarks/ordered_judge.py, ordered_faults.py).
"""

from __future__ import annotations

import random
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
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
    with_key,
)
from benchmarks.ordered_faults import Crowd, DatabaseStop, Watcher, strike
from benchmarks.ordered_judge import OrderedVerdict, judged, ordered_rate
from benchmarks.ordered_look import look_ratio
from message.envelope import Notification
from simulator import Simulator

ROUNDS: Final = 1
MESSAGES: Final = 60_000
KEYS: Final = 50
KILLS: Final = 12
STOPS: Final = 2
WORKERS: Final = 3
RECOVERIES: Final = 2
SHARE_REFUSED: Final = 0.05
LATENCY_MS: Final = 10
SLOWEST: Final = 0.5
"""Of the undisturbed rate, what ordered deliveries do once the last fault is over."""
OVERDUE_MS: Final = 5_000
LOOK: Final = 1.5
_EARLY: Final = 0.6
"""The share of the messages that is produced at first; the rest waits when the last fault strikes."""
_QUIET_S: Final = 120.0
"""Without any progress for so long a run is given up."""
_POLL_S: Final = 0.25
_POLICY: Final = f"""
[lanes."{LANE.name}"]
ordering = "key"
threads = 50
timeout_ms = 2_000
[lanes."{LANE.name}".retry]
attempts = 1_000
base_ms = 100
cap_ms = 1_000
"""
_CONFIGURATION: Final = """
[accounts.main]
provider = "webhook"
endpoint = "{url}/hook"
status_query = true
query_lag_s = 1

[kafka]
session_timeout_s = 6

[worker]
lease_s = 3

[recovery]
lease_s = 3
lanes = ["{lane}"]
health_address = "127.0.0.1:0"
"""


class Size(msgspec.Struct, frozen=True):
    """How much of it."""

    messages: int = MESSAGES
    keys: int = KEYS
    kills: int = KILLS
    stops: int = STOPS
    seed: int = 7


class OrderedRun(msgspec.Struct):
    """One run and what became of it."""

    seconds: float
    ordered_per_second: float
    """Over the whole run; of a disturbed one from the last fault's end."""
    verdict: OrderedVerdict
    overdue_ms: int
    """The longest that something due stood there while nothing was wrong."""


def measure(
    servers: Servers,
    *,
    rounds: int = ROUNDS,
    size: Size | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """OrderedRun both `rounds` times and look; raises RuntimeError for a run that makes no progress."""
    size = size or Size()
    found: dict[str, list[OrderedRun]] = {"undisturbed": [], "disturbed": []}
    for number in range(rounds):
        for name, runs in found.items():
            with TemporaryDirectory() as folder:
                one = _run(servers, Path(folder), size, disturbed=name == "disturbed", say=say)
            runs.append(one)
            say(f"round {number + 1}/{rounds}  {name:12} {_line(one)}")
    look = look_ratio(servers)
    say(f"one look: {look['median']} x at 100,000 rows behind one key what it takes at 100")
    return _report(found, look, size)


def _run(
    servers: Servers, folder: Path, size: Size, *, disturbed: bool, say: Callable[[str], None]
) -> OrderedRun:
    refused = SHARE_REFUSED / 2 if disturbed else 0.0
    errors = {"429": refused, "425": refused} if disturbed else {}
    name = f"b{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        simulated = provider_at(folder, "main", latency_ms=str(LATENCY_MS), errors=errors)
        provider = stack.enter_context(simulated)
        prefix = stack.enter_context(topics(servers, [LANE]))
        url = stack.enter_context(fresh_database(servers.database_url, name))
        _configure(folder, provider)
        environment = environment_for(servers, prefix, name, url, folder / "policy.toml")
        crowd = stack.enter_context(Crowd(environment, folder, WORKERS, RECOVERIES))
        watcher = stack.enter_context(Watcher(url))
        made = [_message(number, size) for number in range(size.messages)]
        early = int(size.messages * _EARLY)
        began = time.monotonic()
        _produce(servers, prefix, made[:early])
        healed_ms, outage = 0, DatabaseStop(servers.database_url, name)
        if disturbed:
            for messages, fault in _plan(size, early)[:-1]:
                strike(fault, crowd, outage, watcher, partial(_has_arrived, provider, messages))
                say(f"{fault} after {messages:,} messages")
        _produce(servers, prefix, made[early:])
        if disturbed:
            # The last one strikes with the rest of the messages waiting: that backlog is timed.
            healed_ms = strike("database", crowd, outage, watcher, lambda: True)
            say("database, with the rest of the messages waiting")
        _await_end(provider, watcher, len(made))
        seconds = time.monotonic() - began
        records = list(provider.records())
        verdict = judged(made, records, watcher.states())
        rate = ordered_rate(made, records, healed_ms)
        return OrderedRun(round(seconds, 1), rate, verdict, watcher.overdue_ms)


def _message(number: int, size: Size) -> Notification:
    """Every second one has a key."""
    item = notification(number)
    return with_key(item, f"key-{number // 2 % size.keys}") if number % 2 else item


def _produce(servers: Servers, prefix: str, made: Sequence[Notification]) -> None:
    producer = kafka.producer(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix))
    for item in made:
        produce(producer, LANE.topic(prefix), item)
    producer.flush(60)


def _configure(folder: Path, provider: Simulator) -> None:
    text = _CONFIGURATION.format(url=provider.url, lane=LANE.name)
    (folder / "hongyan.toml").write_text(text)
    (folder / "policy.toml").write_text(_POLICY)


def _plan(size: Size, early: int) -> list[tuple[int, str]]:
    """(messages that have arrived, what strikes then), in order; the same for the same seed. All strike
    among the `early` messages; the last is an outage of the database."""
    luck = random.Random(size.seed)
    faults = ["worker", "recovery"] * (size.kills // 2) + ["worker"] * (size.kills % 2)
    faults += ["database"] * (size.stops - 1)
    luck.shuffle(faults)
    faults.append("database")
    first, step = early * 0.05, early * 0.85 / len(faults)
    return [(int(first + step * (n + luck.random())), fault) for n, fault in enumerate(faults)]


def _arrived(provider: Simulator) -> int:
    return provider.report(summary_only=True).summary.accepted


def _has_arrived(provider: Simulator, messages: int) -> bool:
    return _arrived(provider) >= messages


def _await_end(provider: Simulator, watcher: Watcher, messages: int) -> None:
    """Until every message is settled. Raises RuntimeError without progress."""
    before, since = (-1, -1), time.monotonic()
    while (open_rows := watcher.open_rows()) or _arrived(provider) < messages:
        now = (open_rows, _arrived(provider))
        if now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > _QUIET_S:
            raise RuntimeError(f"no progress: {now[1]} of {messages} arrived, {now[0]} rows open")
        time.sleep(_POLL_S)


def _report(found: dict[str, list[OrderedRun]], look: dict[str, Any], size: Size) -> dict[str, Any]:
    pairs = zip(found["disturbed"], found["undisturbed"], strict=True)
    drained = [round(d.ordered_per_second / u.ordered_per_second, 3) for d, u in pairs]
    runs = [run for of_kind in found.values() for run in of_kind]
    overdue = [run.overdue_ms for run in found["disturbed"]]
    ratios = [
        _bound("ordered rate after the last fault / undisturbed", drained, SLOWEST),
        look,
        _bound("overdue while nothing was wrong, ms", overdue, OVERDUE_MS, most=True),
    ]
    for field in OrderedVerdict.__struct_fields__:
        values = [getattr(run.verdict, field) for run in runs]
        ratios.append(_bound(field.replace("_", " "), values, 0, most=True))
    medians = {
        name: {
            "ordered_per_second": statistics.median(run.ordered_per_second for run in of_kind),
            "seconds": statistics.median(run.seconds for run in of_kind),
        }
        for name, of_kind in found.items()
    }
    return {"size": msgspec.to_builtins(size), "medians": medians, "ratios": ratios}


def _bound(
    name: str, values: Sequence[float], wanted: float, *, most: bool = False
) -> dict[str, Any]:
    worst = max(values) if most else statistics.median(values)
    return {
        "ratio": name,
        "median": worst,
        "wanted": wanted,
        "at_most": most,
        "holds": worst <= wanted if most else worst >= wanted,
        "rounds": list(values),
    }


def _line(found: OrderedRun) -> str:
    verdict = " ".join(f"{k} {v}" for k, v in msgspec.to_builtins(found.verdict).items())
    return (
        f"{found.seconds:>7.1f} s  {found.ordered_per_second:>7.1f} ordered/s  "
        f"overdue {found.overdue_ms} ms  {verdict}"
    )
