"""What claiming and settling cost, by batch size: `python -m benchmarks.ledger [--json] [DATABASE_URL …]`.

Without a URL: SQLite in a temporary folder. A PostgreSQL URL must name a database that may be written
to; rows stay there. CPU is this process's, wall includes the server and its fsync.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from backends.settings import DatabaseSettings, Settings
from idempotency.ledger import Claim, Ledger, Settlement
from idempotency.sql_ledger import open_ledger, upgrade
from message.delivery import Delivery, Origin, deliveries_of
from message.envelope import Notification, Template, encode
from message.ids import new_id, new_token
from message.states import Event

BATCHES = (1, 20, 100, 200, 500)
ROUND_S = 0.4
ROUNDS = 5


@dataclass(frozen=True)
class Cost:
    """Microseconds per delivery, medians of the rounds."""

    database: str
    batch: int
    claim_cpu: float
    claim_wall: float
    settle_cpu: float
    settle_wall: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="*", metavar="DATABASE_URL")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs = [c for url in asked.urls or [f"sqlite:///{folder}/ledger.db"] for c in measure(url)]
    if asked.json:
        print(json.dumps([asdict(cost) for cost in costs], indent=2))
        return
    print(f"{'µs per delivery':<22}{'claim':^16}{'settle':^16}{'together':^16}")
    print(f"{'database':<12}{'batch':>7}   " + f"{'cpu':>8}{'wall':>8}" * 3)
    for c in costs:
        cpu, wall = c.claim_cpu + c.settle_cpu, c.claim_wall + c.settle_wall
        values = (c.claim_cpu, c.claim_wall, c.settle_cpu, c.settle_wall, cpu, wall)
        print(f"{c.database:<12}{c.batch:>7}   " + "".join(f"{v:>8.1f}" for v in values))


def measure(url: str) -> Iterator[Cost]:
    """One line per batch size."""
    settings = Settings(database=DatabaseSettings(url=url))
    upgrade(settings)
    ledger = open_ledger(settings)
    for batch in BATCHES:
        _round(ledger, batch, seconds=0.1)  # connections, prepared statements
        rounds = [_round(ledger, batch, ROUND_S) for _ in range(ROUNDS)]
        yield Cost(url.partition(":")[0], batch, *map(statistics.median, zip(*rounds, strict=True)))
    ledger.close()


def _round(ledger: Ledger, batch: int, seconds: float) -> tuple[float, float, float, float]:
    spent = [0.0, 0.0, 0.0, 0.0]
    rows, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        deliveries = [delivery for _ in range(batch) for delivery in _deliveries()]
        token = new_token()
        claims = [Claim(delivery, token) for delivery in deliveries]
        begun = _clocks()
        answers = ledger.claim(claims, "bench")
        claimed = _clocks()
        for delivery, answer in zip(deliveries, answers, strict=True):
            delivery.token, delivery.day, delivery.attempt = token, answer.day, answer.attempt
        settlements = [Settlement(d, Event.ACCEPTED, provider_id=d.key) for d in deliveries]
        settling = _clocks()
        if not all(ledger.settle(settlements)):
            raise SystemExit("a settlement was refused: is a worker sweeping this database?")
        settled = _clocks()
        spent[0] += claimed[0] - begun[0]
        spent[1] += claimed[1] - begun[1]
        spent[2] += settled[0] - settling[0]
        spent[3] += settled[1] - settling[1]
        rows += batch
    cpu, wall, cpu_2, wall_2 = (seconds * 1e6 / rows for seconds in spent)
    return cpu, wall, cpu_2, wall_2


def _clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _deliveries() -> list[Delivery]:
    now = int(time.time() * 1000)
    notification = Notification(
        id=new_id(),
        biz_id="order-20261121-1001",
        channel="sms",
        kind="verification",
        receivers=["+8613800000001"],
        template=Template("SMS_123456", {"code": "4711", "product": "鸿雁"}),
        created_at=now,
        ttl_ms=300_000,
    )
    origin = Origin("hongyan.dispatch.sms.verification", 3, now % 1_000_000)
    payload = encode(notification)
    return deliveries_of(
        notification, payload, expires_at=now + 300_000, policy_version="v1", origin=origin
    )


if __name__ == "__main__":
    main()
