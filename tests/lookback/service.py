"""A business with transactional messages, and real processes of `hongyan lookback`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import Producer
from uuid_utils import uuid7

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from lookback.opening import open_lookback_desk
from message.lookback import (
    CommitRecord,
    LookbackRecord,
    PrepareRecord,
    encode,
    record_key,
)
from tests.harness.fork_server import HONGYAN, Process, Program, start
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
RUN = "from hongyan.program import main; main()"
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

    def _start(self, code: str, output: int) -> Process:
        arguments = ["-c", str(self.folder / "hongyan.toml"), "lookback"]
        if code == RUN:
            return start(Program(HONGYAN, arguments, os.environ, str(Path.cwd())), 1, output)
        return subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=output)

    @contextmanager
    def running(self, program: str = RUN) -> Iterator[tuple[Process, str]]:
        """Yields the process and its health address."""
        log = self.folder / f"{uuid7().hex}.log"
        with log.open("w") as output:
            process = self._start(program, output.fileno())

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


@contextmanager
def opened_business(
    topic_prefix: str, kafka_bootstrap: str, ledger_database: str, tmp_path: Path
) -> Iterator[Business]:
    """Yields a business with its topics, its database and its endpoint."""
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
