"""`hongyan bench recovery`: what live traffic feels of many due retries, in one run, as a ratio.

The worker works off the same preloaded topic, in the same lane and through the same account, with a real
`hongyan recovery` (Celery, through Redis) running beside it each time: once over a ledger without retries,
once over one with `ROWS` of them due. Rounds are interleaved, every run has processes and a database of
its own; the database with the retries is made once and copied.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import psycopg

from backends.settings import DatabaseSettings, Settings
from benchmarks.ground import (
    LANE,
    Servers,
    environment_for,
    fresh_database,
    notification,
    preloaded,
    provider_at,
)
from benchmarks.processes import Program
from idempotency.ledger import Claim, Ledger, Settlement
from idempotency.sql_ledger import open_ledger
from message.delivery import deliveries_of
from message.envelope import encode
from message.ids import new_token
from message.states import Event

ROUNDS: Final = 5
ROWS: Final = 100_000
LATENCY_MS: Final = 10
THREADS: Final = 100
WARM: Final = 4_000
SPAN: Final = 16_000
WANTED: Final = 0.9
_AHEAD: Final = 4_000
"""Messages behind the span, so that its end is no emptier than its middle."""
_BATCH: Final = 500
_FAR_MS: Final = 12 * 3_600_000
_TIMEOUT_S: Final = 180

_POLICY = f"""
[lanes."{LANE.name}"]
threads = {THREADS}
"""
_CONFIGURATION = """
[accounts.main]
provider = "webhook"
endpoint = "{url}"
status_query = true
query_lag_s = 1
"""


class RecoveryRun(msgspec.Struct):
    """One run of the worker, with recovery beside it."""

    per_second: float
    """Live deliveries settled."""
    cpu_us_per_message: float
    """The worker's own."""
    resent_per_second: float
    """By recovery, meanwhile."""


def measure(
    servers: Servers,
    *,
    rounds: int = ROUNDS,
    rows: int = ROWS,
    span: int = SPAN,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run both `rounds` times; raises RuntimeError where recovery had retries and sent none."""
    results: dict[str, list[RecoveryRun]] = {"without_retries": [], "with_retries": []}
    with (
        TemporaryDirectory() as folder,
        provider_at(Path(folder), "main", latency_ms=str(LATENCY_MS)) as provider,
        preloaded(servers, WARM + span + _AHEAD) as prefix,
    ):
        (Path(folder) / "hongyan.toml").write_text(_CONFIGURATION.format(url=provider.url))
        (Path(folder) / "policy.toml").write_text(_POLICY)
        with _waiting(servers, rows) as template:
            say(f"{rows:,} due retries stand in the ledger to be copied")
            for number in range(rounds):
                for name, base in (("without_retries", "template1"), ("with_retries", template)):
                    found = _run(servers, prefix, Path(folder), base, span)
                    results[name].append(found)
                    say(f"round {number + 1}/{rounds}  {name:16} {_line(found)}")
    if not all(run.resent_per_second for run in results["with_retries"]):
        raise RuntimeError("recovery sent nothing again while it was measured: see its log")
    return _report(results, rows)


@contextmanager
def _waiting(servers: Servers, rows: int) -> Iterator[str]:
    """A database in which so many deliveries of the lane are due to be sent again."""
    name = f"b{uuid.uuid4().hex[:12]}"
    with fresh_database(servers.database_url, name) as url:
        ledger = open_ledger(Settings(database=DatabaseSettings(url=url)))
        for first in range(0, rows, _BATCH):
            _leave(ledger, range(first, min(first + _BATCH, rows)))
        ledger.close()
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
        yield name


def _leave(ledger: Ledger, numbers: range) -> None:
    """As a worker leaves them: called once, not sent, due at once."""
    token, expires_at = new_token(), int(time.time() * 1000) + _FAR_MS
    claims = []
    for number in numbers:
        item = notification(number)
        (delivery,) = deliveries_of(item, encode(item), expires_at=expires_at)
        delivery.account = "main"
        claims.append(Claim(delivery, token))
    for claim, answer in zip(claims, ledger.claim(claims, "bench"), strict=True):
        delivery = claim.delivery
        delivery.token, delivery.attempt, delivery.day = token, answer.attempt, answer.day
    ledger.settle([Settlement(c.delivery, Event.NOT_SENT, "http_429") for c in claims])


def _run(servers: Servers, prefix: str, folder: Path, base: str, span: int) -> RecoveryRun:
    """One worker in a fresh process on a fresh database, once recovery is at work beside it."""
    name = f"b{uuid.uuid4().hex[:12]}"
    with fresh_database(servers.database_url, name, base) as url:
        environment = environment_for(servers, prefix, name, url, folder / "policy.toml")
        environment |= {
            "HONGYAN_RECOVERY__LANES": LANE.name,
            "HONGYAN_RECOVERY__HEALTH_ADDRESS": "127.0.0.1:0",
        }
        with Program(["recovery"], environment, folder / f"{name}.log") as recovery:
            recovery.await_ready()
            began, before = time.monotonic(), _resent(recovery)
            found = _worker(environment, span)
            resent = _resent(recovery) - before
            seconds = time.monotonic() - began
    return RecoveryRun(found["per_second"], found["cpu_us_per_message"], round(resent / seconds, 1))


def _worker(environment: Mapping[str, str], span: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.loops", "worker", str(WARM), str(span)],
        env=dict(environment),
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])


def _resent(recovery: Program) -> float:
    return sum(recovery.values("hongyan_recovery_resent_total"))


def _report(results: Mapping[str, list[RecoveryRun]], rows: int) -> dict[str, Any]:
    medians = {
        name: {
            field: statistics.median(getattr(run, field) for run in runs)
            for field in RecoveryRun.__struct_fields__
        }
        for name, runs in results.items()
    }
    pairs = zip(results["with_retries"], results["without_retries"], strict=True)
    ratios = [round(over.per_second / under.per_second, 3) for over, under in pairs]
    median = statistics.median(ratios)
    ratio = {
        "ratio": f"throughput with {rows:,} due retries / without",
        "median": median,
        "wanted": WANTED,
        "holds": median >= WANTED,
        "rounds": ratios,
    }
    return {"due_retries": rows, "threads": THREADS, "medians": medians, "ratios": [ratio]}


def _line(found: RecoveryRun) -> str:
    return (
        f"{found.per_second:>9,.0f} messages/s  {found.cpu_us_per_message:>7.1f} µs CPU each  "
        f"{found.resent_per_second:>6.1f} resent/s"
    )
