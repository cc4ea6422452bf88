"""`hongyan bench worker`: the worker beside loops that do less, in one run, as ratios.

Every variant reads the same preloaded topic under a group, a database and Redis keys of its own, in a
process of its own, against the same servers; rounds are interleaved, so that what else the machine does
hits all of them. Medians of the rounds are reported, but for a first one: by then the broker's compiler
and everybody's caches are warm, as they are in production. On request each variant has a core of its own
(benchmarks/cores.py).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from benchmarks import endurance
from benchmarks.cores import apart
from benchmarks.ground import (
    LANE,
    Servers,
    environment_for,
    fresh_database,
    preloaded,
    provider_at,
)
from benchmarks.loops import THREADS
from simulator.servers.certificates import Authority

ROUNDS = 5
PRELOADED = 40_000
_TIMEOUT_S = 180

POLICY = """
[lanes."{lane}"]
guarantee = "{guarantee}"
threads = {threads}
accounts = ["{account}"]
"""
CONFIGURATION = """
[accounts.slow]
provider = "webhook"
endpoint = "{slow}"
[accounts.fast]
provider = "webhook"
endpoint = "{fast}"
[accounts.tls]
provider = "webhook"
endpoint = "{tls}"
ca_file = "{authority}"
[accounts.closing]
provider = "webhook"
endpoint = "{closing}"
ca_file = "{authority}"
[accounts.none]
provider = "null"
endpoint = "http://127.0.0.1:9"
"""


CLOSING: dict[str, Any] = {"close_after": 100, "idle_close_ms": 1_000}
"""How the provider of `closing` ends connections: as servers do that shed them early."""


class Variant(msgspec.Struct, frozen=True):
    """One thing that is measured."""

    name: str
    loop: str
    account: str
    guarantee: str = "at_least_once"
    warm: int = 2_000
    span: int = 8_000


VARIANTS = (
    Variant("at_least_once_50ms", "worker", "slow", warm=1_000, span=5_000),
    Variant("best_effort_50ms", "worker", "slow", "best_effort", warm=1_000, span=5_000),
    Variant("at_least_once_10ms", "worker", "fast", span=12_000),
    Variant("best_effort_10ms", "worker", "fast", "best_effort", span=12_000),
    Variant("at_least_once_10ms_tls", "worker", "tls", span=12_000),
    Variant("at_least_once_10ms_tls_closing", "worker", "closing", span=12_000),
    Variant("bare_loop_10ms", "bare_http", "fast", span=12_000),
    Variant("full_path_null", "worker", "none", span=24_000),
    Variant("bare_loop_batched_io", "batched_io", "none", span=24_000),
    Variant("round_trip_a_message", "round_trips", "none", warm=500, span=2_500),
)
RATIOS = (
    ("at_least_once / best_effort, 50 ms", "at_least_once_50ms", "best_effort_50ms", 0.95),
    ("at_least_once / best_effort, 10 ms", "at_least_once_10ms", "best_effort_10ms", 0.80),
    ("at_least_once / bare loop, 10 ms", "at_least_once_10ms", "bare_loop_10ms", 0.70),
    ("https / http, 10 ms", "at_least_once_10ms_tls", "at_least_once_10ms", 0.85),
    ("full path, null / same batched I/O", "full_path_null", "bare_loop_batched_io", 0.60),
    ("full path, null / round trip a message", "full_path_null", "round_trip_a_message", 8.0),
)


def measure(
    servers: Servers,
    *,
    rounds: int = ROUNDS,
    only: Sequence[str] = (),
    own_core: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run every variant `rounds` times, and once before, and report medians and ratios. `own_core`: servers
    and provider stay off the core of the process that is measured."""
    variants = [v for v in VARIANTS if not only or v.name in only]
    results: dict[str, list[dict[str, float]]] = {v.name: [] for v in variants}
    with (
        TemporaryDirectory() as folder,
        _cores(servers, own_core, say) as core,
        preloaded(servers, PRELOADED) as prefix,
        _configured(Path(folder)),
    ):
        for number in range(rounds + 1):
            for variant in variants:
                found = _run(variant, servers, prefix, Path(folder), core)
                if number:
                    results[variant.name].append(found)
                title = f"round {number}/{rounds}" if number else "not counted"
                say(f"{title:11}  {variant.name:22} {_line(found)}")
    return _report(results)


def endure(
    servers: Servers, *, backlog: int = endurance.BACKLOG, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Memory behind a stuck offset, and the time from SIGTERM to the exit."""
    with TemporaryDirectory() as folder:
        kept = endurance.memory(servers, Path(folder), backlog=backlog, say=say)
        stopped = endurance.stop(servers, Path(folder))
    return {"memory": msgspec.to_builtins(kept), "sigterm": msgspec.to_builtins(stopped)}


@contextmanager
def _configured(folder: Path) -> Iterator[None]:
    """The providers, and a configuration that names them."""
    authority = Authority(folder)
    tls: dict[str, Any] = {"certificate": str(authority.certificate("127.0.0.1"))}
    with (
        provider_at(folder, "slow", latency_ms="50") as slow,
        provider_at(folder, "fast", latency_ms="10") as fast,
        provider_at(folder, "tls", tls, latency_ms="10") as https,
        provider_at(folder, "closing", tls | CLOSING, latency_ms="10") as closing,
    ):
        configuration = CONFIGURATION.format(
            slow=f"{slow.url}/send",
            fast=f"{fast.url}/send",
            tls=f"{https.url}/send",
            closing=f"{closing.url}/send",
            authority=authority.file,
        )
        (folder / "hongyan.toml").write_text(configuration)
        yield


def _report(results: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    medians = {
        name: {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    ratios = []
    for title, over, under, wanted in RATIOS:
        if over in results and under in results:
            pairs = zip(results[over], results[under], strict=True)
            rounds = [round(a["per_second"] / b["per_second"], 3) for a, b in pairs]
            median = statistics.median(rounds)
            ratios.append(
                {
                    "ratio": title,
                    "median": median,
                    "wanted": wanted,
                    "holds": median >= wanted,
                    "rounds": rounds,
                }
            )
    return {"threads": THREADS, "medians": medians, "ratios": ratios}


def _line(found: Mapping[str, float]) -> str:
    return (
        f"{found['per_second']:>9,.0f} messages/s  {found['cpu_us_per_message']:>7.1f} µs CPU each  "
        f"{found['rss_mib']:>6.1f} MiB"
    )


def _cores(
    servers: Servers, own: bool, say: Callable[[str], None]
) -> AbstractContextManager[Mapping[str, str]]:
    return apart(servers.processes, say) if own else nullcontext({})


def _run(
    variant: Variant, servers: Servers, prefix: str, folder: Path, core: Mapping[str, str]
) -> dict[str, float]:
    """One variant once, in a fresh process on a fresh database."""
    name = f"b{uuid.uuid4().hex[:12]}"
    policy = folder / f"{name}.toml"
    policy.write_text(
        POLICY.format(
            lane=LANE.name, guarantee=variant.guarantee, threads=THREADS, account=variant.account
        )
    )
    with fresh_database(servers.database_url, name) as url:
        environment = environment_for(servers, prefix, name, url, policy)
        command = [sys.executable, "-m", "benchmarks.loops", variant.loop]
        done = subprocess.run(
            [*command, str(variant.warm), str(variant.span)],
            env={**environment, **core, "BENCH_ACCOUNT": variant.account},
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=True,
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])
