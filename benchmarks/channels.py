"""`hongyan bench channels`: recipients a second through one account, by how many of them a call carries.

The same provider, Tencent's SMS, is called with 200 numbers at a time and with one; Twilio, which takes
one a call, stands beside it. Threads, guarantee and the provider's latency are the same for all; rounds
are interleaved, every run in a process of its own on a database of its own, medians are reported.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.settings import KafkaSettings
from benchmarks.ground import (
    Servers,
    environment_for,
    fresh_database,
    produce,
    provider_at,
    topics,
)
from message.envelope import Notification, Template
from message.ids import new_id
from message.vocabulary import Lane
from simulator.wire import ID, SECRET

ROUNDS: Final = 5
THREADS: Final = 4
LATENCY_MS: Final = 50
WANTED: Final = 50.0
_TIMEOUT_S: Final = 180
_TTL_MS: Final = 24 * 3_600_000
TENCENT, TWILIO = Lane("sms", "notice"), Lane("sms", "marketing")
_POLICY: Final = """
[lanes."{lane}"]
guarantee = "at_least_once"
threads = {threads}
accounts = ["{account}"]
{batch}
"""
_CONFIGURATION: Final = """
[accounts.tencent]
provider = "tencent_sms"
endpoint = "{url}/tencent_sms"
secret_id = "{id}"
secret_key_file = "secret"
sdk_app_id = "1400006666"
sign_name = "鸿雁"
[accounts.twilio]
provider = "twilio"
endpoint = "{url}/twilio"
account_sid = "AC00000000000000000000000000000000"
auth_token_file = "secret"
sender = "+15005550006"
"""


class ChannelVariant(msgspec.Struct, frozen=True):
    """One way to send; `batch` is the policy's, None: as many as the provider takes."""

    name: str
    lane: Lane
    account: str
    batch: int | None
    warm: int
    span: int


VARIANTS: Final = (
    ChannelVariant("tencent_200_a_call", TENCENT, "tencent", None, warm=4_000, span=30_000),
    ChannelVariant("tencent_1_a_call", TENCENT, "tencent", 1, warm=80, span=480),
    ChannelVariant("twilio_1_a_call", TWILIO, "twilio", None, warm=80, span=480),
)
RATIOS: Final = (
    ("200 a call / 1 a call, same provider", "tencent_200_a_call", "tencent_1_a_call"),
    ("200 a call / a provider that takes 1", "tencent_200_a_call", "twilio_1_a_call"),
)


def measure(
    servers: Servers,
    *,
    rounds: int = ROUNDS,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run every variant `rounds` times and report medians and ratios."""
    results: dict[str, list[dict[str, float]]] = {variant.name: [] for variant in VARIANTS}
    with (
        TemporaryDirectory() as folder,
        _preloaded(servers) as prefix,
        provider_at(Path(folder), "provider", latency_ms=str(LATENCY_MS)) as provider,
    ):
        text = _CONFIGURATION.format(url=provider.url, id=ID)
        (Path(folder) / "hongyan.toml").write_text(text)
        (Path(folder) / "secret").write_text(SECRET)
        for number in range(rounds):
            for variant in VARIANTS:
                found = _run(variant, servers, prefix, Path(folder))
                results[variant.name].append(found)
                say(f"round {number + 1}/{rounds}  {variant.name:20} {_line(found)}")
    return _report(results)


@contextmanager
def _preloaded(servers: Servers) -> Iterator[str]:
    """A topic prefix whose lanes hold enough for one run of each variant."""
    with topics(servers, [TENCENT, TWILIO]) as prefix:
        producer = kafka.producer(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix))
        for lane, make in ((TENCENT, _by_template), (TWILIO, _by_text)):
            count = max(v.warm + v.span for v in VARIANTS if v.lane == lane)
            # What is under way when the measurement ends is on top of it.
            for number in range(count + 2 * THREADS * 200):
                produce(producer, lane.topic(prefix), make(number))
        producer.flush(60)
        yield prefix


def _by_template(number: int) -> Notification:
    """The same text for everybody, so that numbers can share a call."""
    template = Template("1110", {"1": "21:00"})
    return _notification(TENCENT, f"+86139{number:08d}", template=template)


def _by_text(number: int) -> Notification:
    content = {"text": "Service is down for maintenance from 21:00"}
    return _notification(TWILIO, f"+1415{2_000_000 + number}", content=content)


def _notification(lane: Lane, receiver: str, **fields: Any) -> Notification:
    return Notification(
        id=new_id(),
        channel=lane.channel,
        kind=lane.kind,
        receivers=[receiver],
        created_at=int(time.time() * 1_000),
        ttl_ms=_TTL_MS,
        **fields,
    )


def _run(variant: ChannelVariant, servers: Servers, prefix: str, folder: Path) -> dict[str, float]:
    """One variant once, in a fresh process on a fresh database."""
    name = f"b{uuid.uuid4().hex[:12]}"
    policy = folder / f"{name}.toml"
    batch = "" if variant.batch is None else f"batch = {variant.batch}"
    text = _POLICY.format(
        lane=variant.lane.name, threads=THREADS, account=variant.account, batch=batch
    )
    policy.write_text(text)
    with fresh_database(servers.database_url, name) as url:
        command = [sys.executable, "-m", "benchmarks.loops", "worker"]
        done = subprocess.run(
            [*command, str(variant.warm), str(variant.span)],
            env=environment_for(servers, prefix, name, url, policy, [variant.lane]),
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=True,
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])


def _report(results: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    ratios = [_ratio(title, results[over], results[under]) for title, over, under in RATIOS]
    return {"threads": THREADS, "latency_ms": LATENCY_MS, "medians": medians, "ratios": ratios}


def _ratio(
    title: str, over: Sequence[Mapping[str, float]], under: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    pairs = zip(over, under, strict=True)
    rounds = [round(a["per_second"] / b["per_second"], 1) for a, b in pairs]
    median = statistics.median(rounds)
    holds = median >= WANTED
    return {"ratio": title, "median": median, "wanted": WANTED, "holds": holds, "rounds": rounds}


def _line(found: Mapping[str, float]) -> str:
    return (
        f"{found['per_second']:>9,.0f} recipients/s"
        f"  {found['cpu_us_per_message']:>7.1f} µs CPU each  {found['rss_mib']:>6.1f} MiB"
    )
