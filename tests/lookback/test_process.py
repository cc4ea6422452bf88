"""`hongyan lookback` on real Kafka and PostgreSQL: forwards, survives kill -9, drains on SIGTERM."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from uuid_utils import uuid7

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from lookback.opening import open_lookback_desk
from message.lookback import (
    CommitRecord,
    LookbackRecord,
    PrepareRecord,
    RollbackRecord,
    encode,
    record_key,
)
from tests.harness.waiting import await_
from tests.harness.wire import Wire

CONFIG = """
allow_literal_secrets = true
[kafka]
bootstrap = "{bootstrap}"
topic_prefix = "{prefix}"
group_id = "{prefix}"
group_protocol = "classic"
session_timeout_s = 6
[kafka.client]
"topic.metadata.refresh.interval.ms" = 500
[database]
url = "{url}"
[trace]
kafka = false
database = false
[lookback]
topic = "{prefix}.look_back_msg"
poll_s = 0.05
lease_s = 2
health_address = "127.0.0.1:0"
[lookback.checks.orders]
url = "http://127.0.0.1:{port}/check"
[lookback.biz_types.order]
check = "orders"
topics = ["{prefix}.target"]
immunity_s = 0.2
check_s = 0.2
longest_transaction_s = 0.5
deadline_s = 3600
"""
RUN = "from hongyan.cli import main; main()"
DIES = (
    "import os, signal, lookback.store as s; "
    "s.LookbackStore.mark_forwarded = lambda *_: os.kill(os.getpid(), signal.SIGKILL); " + RUN
)
"""A process that is killed after the broker's acknowledgement, before its mark."""


class Business(NamedTuple):
    """A topic, its look-back's configuration, and the business that is asked."""

    folder: Path
    prefix: str
    bootstrap: str
    wire: Wire
    ledger: SqlLedger
    settings: Settings
    states: dict[str, str]
    """The answers to checks by biz_id."""

    def send(self, *records: LookbackRecord) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for one in records:
            key = record_key(one.biz_type, one.biz_id)
            producer.produce(f"{self.prefix}.look_back_msg", encode(one), key)
        assert producer.flush(20) == 0

    def prepare(self, biz_id: str, payload: bytes = b"body") -> PrepareRecord:
        return PrepareRecord(
            biz_type="order",
            biz_id=biz_id,
            tx_id=uuid7().hex,
            topic=f"{self.prefix}.target",
            payload=payload,
        )

    def arrived(self) -> list[Any]:
        return self.wire.read(f"{self.prefix}.target")

    def state(self, biz_id: str) -> str:
        found = open_lookback_desk(self.ledger, self.settings).find(biz_id)
        return found[0].state.value if found else ""

    @contextmanager
    def running(self, program: str = RUN) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """Yields the process and its health address."""
        log = self.folder / f"{uuid7().hex}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    program,
                    "-c",
                    str(self.folder / "hongyan.toml"),
                    "lookback",
                ],
                stderr=output,
            )

        def started() -> list[str]:
            return [line for line in log.read_text().splitlines() if "lookback_started" in line]

        try:
            await_(lambda: bool(started()), what="the process has started")
            yield process, json.loads(started()[0])["health"]
        finally:
            process.kill()
            process.wait()


def committed(one: PrepareRecord) -> CommitRecord:
    return CommitRecord(biz_type=one.biz_type, biz_id=one.biz_id, tx_id=one.tx_id)


@pytest.fixture
def business(
    topic_prefix: str, kafka_bootstrap: str, ledger_database: str, tmp_path: Path
) -> Iterator[Business]:
    states: dict[str, str] = {}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            biz_id = self.path.partition("biz_id=")[2].partition("&")[0]
            body = json.dumps({"state": states.get(biz_id, "UNKNOWN"), "biz_id": biz_id}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    config = CONFIG.format(
        bootstrap=kafka_bootstrap,
        prefix=topic_prefix,
        url=ledger_database,
        port=server.server_address[1],
    )
    (tmp_path / "hongyan.toml").write_text(config)
    wire = Wire(kafka_bootstrap, topic_prefix, topic_prefix)
    for name in ("look_back_msg", "target", "dead"):
        wire.make_topic(f"{topic_prefix}.{name}", 3)
    settings = Settings(database=DatabaseSettings(url=ledger_database))
    ledger = open_ledger(settings)
    yield Business(tmp_path, topic_prefix, kafka_bootstrap, wire, ledger, settings, states)
    ledger.close()
    wire.close()
    server.shutdown()
    server.server_close()


def test_it_forwards_asks_and_drains_on_sigterm(business: Business) -> None:
    """Committed, rolled back, asked about, poison; then SIGTERM, and all offsets are committed."""
    business.states["paid"] = "COMMIT"
    one, two, three = (business.prepare(name) for name in ("1001", "1002", "paid"))
    fields = (two.biz_type, two.biz_id, two.tx_id)
    back = RollbackRecord(biz_type=fields[0], biz_id=fields[1], tx_id=fields[2])
    early = business.prepare("1003")
    with business.running() as (process, health):
        business.send(one, committed(one), two, back, three, committed(early), early)
        producer = Producer({"bootstrap.servers": business.bootstrap})
        producer.produce(f"{business.prefix}.look_back_msg", b"no record")
        producer.flush(10)
        await_(lambda: business.state("paid") == "FORWARDED", what="the check's commit")
        await_(lambda: business.state("1001") == "FORWARDED", what="the commit")
        await_(lambda: business.state("1003") == "FORWARDED", what="the early commit")
        assert business.state("1002") == "ROLLED_BACK"
        await_(lambda: len(business.wire.dead_letters()) == 1, what="the dead letter")
        assert urlopen(f"http://{health}/healthz").status == 200
        assert urlopen(f"http://{health}/readyz").status == 200
        page = urlopen(f"http://{health}/metrics").read().decode()
        assert 'hongyan_lookback_checks_total{answer="COMMIT",biz_type="order"} 1.0' in page
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    keys = sorted(message.key() for message in business.arrived())
    assert keys == [b"1001", b"1003", b"paid"]
    wire = Wire(business.bootstrap, business.prefix, f"{business.prefix}-lookback")
    topic = f"{business.prefix}.look_back_msg"
    positions = {place: one.offset for place, one in wire.committed([topic]).items()}
    assert positions.items() >= {p: end for p, end in wire.ends(topic).items() if end}.items()
    wire.close()


def test_killed_between_produce_and_mark_the_same_message_goes_again(business: Business) -> None:
    """Invariant 4."""
    one = business.prepare("1001")
    with business.running(DIES) as (process, _):
        business.send(one, committed(one))
        assert process.wait(30) == -signal.SIGKILL
    assert business.state("1001") == "COMMITTED"
    with business.running(), business.running():
        await_(lambda: business.state("1001") == "FORWARDED", what="the second forward")
    first, second = business.arrived()
    assert first.key() == second.key() == b"1001"
    assert first.partition() == second.partition()
    assert first.value() == second.value() == b"body"
    assert first.headers() == second.headers() == [("hongyan-tx-id", one.tx_id.encode())]


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_killed_at_random_moments_nothing_committed_is_missing(business: Business) -> None:
    """Kills two processes while they take, check and forward."""
    records: list[LookbackRecord] = []
    wanted = set()
    for number in range(60):
        one = business.prepare(f"b{number}")
        records += [one, committed(one)] if number % 3 else [one]
        if number % 3 or number % 2:
            wanted.add(one.biz_id.encode())
        business.states[one.biz_id] = "COMMIT" if one.biz_id.encode() in wanted else "ROLLBACK"
    for part in range(3):
        with business.running(), business.running():
            business.send(*records[part::3])
            arrived = len({message.key() for message in business.arrived()})
            await_(
                lambda arrived=arrived: len({m.key() for m in business.arrived()}) > arrived,
                what="some more messages",
            )
    with business.running():
        await_(lambda: {m.key() for m in business.arrived()} == wanted, what="all committed ones")
        await_(
            lambda: all(business.state(f"b{n}") == "ROLLED_BACK" for n in range(0, 60, 6)),
            what="the rolled-back ones",
        )
    assert {message.key() for message in business.arrived()} == wanted
