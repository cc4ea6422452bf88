"""`hongyan bench worker`: the worker beside loops that do less, in one run, as ratios.

Every variant reads the same preloaded topic under a group, a database and Redis keys of its own, in a
process of its own, against the same servers; rounds are interleaved, so that what else the machine
does hits all of them. Medians of the rounds are reported.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psycopg
from confluent_kafka.admin import NewTopic

from backends import kafka
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from benchmarks.loops import LANE, THREADS
from channels.simulator import Faults, Simulator, spawn
from idempotency.opening import upgrade
from message.envelope import Notification, encode
from message.ids import new_id

ROUNDS = 5
PARTITIONS = 4
PRELOADED = 40_000
_TIMEOUT_S = 180
_TTL_MS = 24 * 3_600_000

POLICY = """
[lanes."{lane}"]
guarantee = "{guarantee}"
threads = {threads}
max_in_flight = 10000
accounts = ["{account}"]
"""
CONFIGURATION = """
[accounts.slow]
provider = "webhook"
endpoint = "{slow}"
[accounts.fast]
provider = "webhook"
endpoint = "{fast}"
[accounts.none]
provider = "null"
channel = "webhook"
endpoint = "http://127.0.0.1:9"
"""


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
    Variant("bare_loop_10ms", "bare_http", "fast", span=12_000),
    Variant("full_path_null", "worker", "none", span=24_000),
    Variant("bare_loop_batched_io", "batched_io", "none", span=24_000),
    Variant("round_trip_a_message", "round_trips", "none", warm=500, span=2_500),
)
RATIOS = (
    ("at_least_once / best_effort, 50 ms", "at_least_once_50ms", "best_effort_50ms", 0.95),
    ("at_least_once / best_effort, 10 ms", "at_least_once_10ms", "best_effort_10ms", 0.80),
    ("at_least_once / bare loop, 10 ms", "at_least_once_10ms", "bare_loop_10ms", 0.70),
    ("full path, null / same batched I/O", "full_path_null", "bare_loop_batched_io", 0.60),
    ("full path, null / round trip a message", "full_path_null", "round_trip_a_message", 8.0),
)


class Servers(msgspec.Struct, frozen=True):
    """Where the local stack is."""

    bootstrap: str
    database_url: str
    redis_url: str


def measure(
    servers: Servers,
    *,
    rounds: int = ROUNDS,
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> dict[str, object]:
    """Run every variant `rounds` times and report medians and ratios."""
    variants = [v for v in VARIANTS if not only or v.name in only]
    prefix = f"bench{uuid.uuid4().hex[:8]}"
    results: dict[str, list[dict[str, float]]] = {v.name: [] for v in variants}
    with TemporaryDirectory() as folder, _topic(servers, prefix), _providers(Path(folder)) as urls:
        _configure(Path(folder), urls)
        for number in range(rounds):
            for variant in variants:
                found = _run(variant, servers, prefix, Path(folder))
                results[variant.name].append(found)
                say(f"round {number + 1}/{rounds}  {variant.name:22} {_line(found)}")
    return _report(results)


def _report(results: Mapping[str, list[dict[str, float]]]) -> dict[str, object]:
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


@contextmanager
def _topic(servers: Servers, prefix: str) -> Iterator[None]:
    """The lane's topic, preloaded once for everybody."""
    settings = KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix)
    admin, topic = kafka.admin(settings), LANE.topic(prefix)
    names = [topic, f"{prefix}.dead", f"{prefix}.trace"]
    for future in admin.create_topics([NewTopic(n, PARTITIONS, 1) for n in names]).values():
        future.result()
    producer = kafka.producer(settings)
    for number in range(PRELOADED):
        notification = _notification(number)
        while True:
            try:
                producer.produce(topic, encode(notification), notification.kafka_key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    yield
    for future in admin.delete_topics(names).values():
        future.result()


def _notification(number: int) -> Notification:
    return Notification(
        id=new_id(),
        biz_id=f"order-{number}",
        channel=LANE.channel,
        kind=LANE.kind,
        receivers=[f"user-{number}"],
        content={"title": "您的订单已发货", "text": f"订单 {number} 预计明天送达，请注意查收。"},
        created_at=int(time.time() * 1000),
        ttl_ms=_TTL_MS,
        attributes={"source": "bench"},
    )


@contextmanager
def _providers(folder: Path) -> Iterator[dict[str, str]]:
    with (
        _provider(folder, "slow", 50) as slow,
        _provider(folder, "fast", 10) as fast,
    ):
        yield {"slow": f"{slow.url}/send", "fast": f"{fast.url}/send"}


def _provider(folder: Path, name: str, latency_ms: int) -> Simulator:
    """Its ledger is written but not synced: what is measured is the client."""
    faults = Faults(latency_ms=str(latency_ms))
    return spawn(folder, ledger=str(folder / f"{name}.jsonl"), fsync=False, rules=[faults])


def _configure(folder: Path, urls: Mapping[str, str]) -> None:
    (folder / "hongyan.toml").write_text(CONFIGURATION.format(**urls))


def _run(variant: Variant, servers: Servers, prefix: str, folder: Path) -> dict[str, float]:
    """One variant once, in a fresh process on a fresh database."""
    name = f"b{uuid.uuid4().hex[:12]}"
    policy = folder / f"{name}.toml"
    policy.write_text(
        POLICY.format(
            lane=LANE.name, guarantee=variant.guarantee, threads=THREADS, account=variant.account
        )
    )
    with _database(servers.database_url, name) as url:
        environment = os.environ | {
            "HONGYAN_CONFIG": str(folder / "hongyan.toml"),
            "HONGYAN_POLICY__FILE": str(policy),
            "HONGYAN_KAFKA__BOOTSTRAP": servers.bootstrap,
            "HONGYAN_KAFKA__GROUP_ID": name,
            "HONGYAN_KAFKA__TOPIC_PREFIX": prefix,
            "HONGYAN_DATABASE__URL": url,
            "HONGYAN_REDIS__URL": servers.redis_url,
            "HONGYAN_REDIS__PREFIX": name,
            "HONGYAN_WORKER__LANES": LANE.name,
            "HONGYAN_WORKER__HEALTH_ADDRESS": "127.0.0.1:0",
            "HONGYAN_LOG__LEVEL": "error",
            "BENCH_ACCOUNT": variant.account,
        }
        command = [sys.executable, "-m", "benchmarks.loops", variant.loop]
        done = subprocess.run(
            [*command, str(variant.warm), str(variant.span)],
            env=environment,
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=True,
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])


@contextmanager
def _database(base_url: str, name: str) -> Iterator[str]:
    """A database of the run's own, migrated."""
    with psycopg.connect(base_url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        url = f"{base_url.rpartition('/')[0]}/{name}"
        upgrade(Settings(database=DatabaseSettings(url=url)))
        try:
            yield url
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
