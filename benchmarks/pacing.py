"""`hongyan bench pacing`: what becomes of a burst at a provider that only says "slower", counted.

    silent    2,000 notices at once at a provider that refuses every call (429, Retry-After 1) for a minute,
              and then takes 20 a second
    resend    200 mails at once at a model of Resend that takes 2 a second

The accounts name no rate. One real worker and one real recovery work on the burst until every delivery has
ended. Wanted: each delivery sent, none twice, and not many more calls than deliveries.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from benchmarks.ground import (
    LANE,
    Servers,
    environment_for,
    fresh_database,
    notification,
    produce,
    topics,
)
from benchmarks.processes import Program
from idempotency.sql_ledger import open_ledger
from message.states import OPEN, State
from message.vocabulary import Lane
from simulator import Faults, Simulator, spawn

MAIL: Final = Lane("email", "notice")
NOTICES: Final = 2_000
TAKEN_PER_S: Final = 20
SILENCE_S: Final = 60.0
MAILS: Final = 200
CALLS_EACH: Final = 1.3
_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.25
_KEY: Final = "re_bench"
_OPEN: Final = frozenset(map(str, OPEN))


class Burst(msgspec.Struct, frozen=True):
    """One burst and its provider."""

    name: str
    lane: Lane
    count: int
    account: str
    """Lines of `[accounts.main]`; `{url}` is the provider's."""
    rules: Faults
    silence_s: float = 0.0
    """At first the provider refuses every call for so long."""


class PacedBurst(msgspec.Struct):
    """What became of a burst."""

    parked: float
    sent: float
    calls_each: float
    """Provider calls for each delivery."""
    doubled: float
    """Deliveries that the provider accepted more than once."""
    seconds: float


def bursts(
    *, notices: int = NOTICES, silence_s: float = SILENCE_S, mails: int = MAILS
) -> tuple[Burst, ...]:
    """What is measured, in full or in small."""
    webhook = 'provider = "webhook"\nendpoint = "{url}/hook"\n'
    resend = (
        'provider = "resend"\nendpoint = "{url}/resend"\nsender = "Bench <bench@example.com>"\n'
    )
    limit = Faults(limit=TAKEN_PER_S, retry_after="1")
    two = Faults(limit=2, limit_code="rate_limit_exceeded")
    return (
        Burst("silent", LANE, notices, webhook, limit, silence_s),
        Burst("resend", MAIL, mails, resend, two),
    )


def measure(
    servers: Servers,
    some: Sequence[Burst] | None = None,
    *,
    policy: str = "",
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run each burst once; raises RuntimeError where deliveries stay open for too long."""
    found: dict[str, PacedBurst] = {}
    for burst in bursts() if some is None else some:
        with TemporaryDirectory() as folder:
            found[burst.name] = _run(servers, burst, Path(folder), policy)
        say(f"{burst.name:8} {_line(found[burst.name])}")
    return _report(found)


def _run(servers: Servers, burst: Burst, folder: Path, policy: str) -> PacedBurst:
    name = f"b{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        provider = stack.enter_context(_provider(folder, burst))
        prefix = stack.enter_context(topics(servers, [burst.lane]))
        _produce(servers, prefix, burst)
        account = burst.account.format(url=provider.url)
        (folder / "hongyan.toml").write_text(f"[accounts.main]\n{account}")
        (folder / "policy.toml").write_text(policy)
        url = stack.enter_context(fresh_database(servers.database_url, name))
        if burst.silence_s:
            provider.control(rules=[Faults(errors={"429": 1.0}, retry_after="1")])
        environment = environment_for(
            servers, prefix, name, url, folder / "policy.toml", [burst.lane]
        )
        began = time.monotonic()
        stack.enter_context(_processes(environment, burst.lane, folder))
        states = _ended(url, burst, provider, began)
        seconds = round(time.monotonic() - began, 1)
        report = provider.report()
    calls = sum(1 for _ in provider.records())
    accepted = [one.accepted for one in report.keys]
    return PacedBurst(
        parked=float(burst.count - states[State.SENT]),
        sent=float(states[State.SENT]),
        calls_each=round(calls / burst.count, 3),
        doubled=float(sum(count > 1 for count in accepted)),
        seconds=seconds,
    )


def _provider(folder: Path, burst: Burst) -> Simulator:
    """Its ledger is written but not synced."""
    return spawn(
        folder,
        ledger=str(folder / "provider.jsonl"),
        fsync=False,
        rules=[burst.rules],
        credentials={"resend": {"api_key": _KEY}},
    )


def _produce(servers: Servers, prefix: str, burst: Burst) -> None:
    producer = kafka.producer(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix))
    for number in range(burst.count):
        item = notification(number, lane=burst.lane)
        if burst.lane is MAIL:
            content = {"subject": "Shipped", "text": f"Order {number} was shipped."}
            receivers = [f"user-{number}@example.com"]
            item = msgspec.structs.replace(item, content=content, receivers=receivers)
        produce(producer, burst.lane.topic(prefix), item)
    producer.flush(60)


@contextmanager
def _processes(environment: Mapping[str, str], lane: Lane, folder: Path) -> Iterator[None]:
    """A worker and a recovery of the lane."""
    more = {
        "HONGYAN_ACCOUNTS__MAIN__API_KEY": _KEY,
        "HONGYAN_RECOVERY__LANES": lane.name,
        "HONGYAN_RECOVERY__HEALTH_ADDRESS": "127.0.0.1:0",
    }
    if lane is not MAIL:
        del more["HONGYAN_ACCOUNTS__MAIN__API_KEY"]
    with (
        Program(["worker"], {**environment, **more}, folder / "worker.log"),
        Program(["recovery", "--embedded"], {**environment, **more}, folder / "recovery.log"),
    ):
        yield


def _ended(url: str, burst: Burst, provider: Simulator, began: float) -> Counter[str]:
    """The states once every delivery has ended; the provider speaks when its silence is over."""
    ledger = open_ledger(Settings(database=DatabaseSettings(url=url)))
    silent, states = burst.silence_s > 0, Counter[str]()
    try:
        while time.monotonic() - began < _TIMEOUT_S:
            if silent and time.monotonic() - began >= burst.silence_s:
                provider.control(rules=[burst.rules])
                silent = False
            states = Counter()
            for (_lane, state), rows in ledger.queries().counts().items():
                states[state] += rows
            if states.total() >= burst.count and not any(states[state] for state in _OPEN):
                return states
            time.sleep(_POLL_S)
    finally:
        ledger.close()
    raise RuntimeError(f"{burst.name}: after {_TIMEOUT_S:g} s not all have ended: {dict(states)}")


def _report(found: Mapping[str, PacedBurst]) -> dict[str, Any]:
    ratios = []
    for name, run in found.items():
        ratios.append(_bound(f"{name}: not sent", run.parked, 0))
        ratios.append(_bound(f"{name}: sent twice", run.doubled, 0))
        ratios.append(_bound(f"{name}: calls for each delivery", run.calls_each, CALLS_EACH))
    medians = {name: msgspec.structs.asdict(run) for name, run in found.items()}
    return {"medians": medians, "ratios": ratios}


def _bound(name: str, value: float, most: float) -> dict[str, Any]:
    return {"ratio": name, "median": value, "wanted": most, "at_most": True, "holds": value <= most}


def _line(run: PacedBurst) -> str:
    return (
        f"sent {run.sent:,.0f}  not sent {run.parked:,.0f}  twice {run.doubled:,.0f}  "
        f"{run.calls_each:.3f} calls each  {run.seconds:.0f} s"
    )
