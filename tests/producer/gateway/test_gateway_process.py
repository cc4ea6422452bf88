"""`hongyan gateway` as processes over real Kafka: kill -9, retries on another gateway, limits, the end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from sqlalchemy import text

from backends.http_server.connection_limits import HEAD_BYTES
from backends.kafka.topic_reader import read_topic
from backends.kafka.topics import Wish, apply
from backends.settings import KafkaSettings
from backends.sql.database import Database, database_url
from idempotency.sql_ledger import clock_of
from message.envelope import decode
from message.vocabulary import Lane
from producer.gateway.api_keys import terms_of
from producer.gateway.key_store import KeyStore
from tests.producer.gateway.conftest import NOTICE, bearer

CONFIG = """
allow_literal_secrets = true
[kafka]
bootstrap = "{bootstrap}"
topic_prefix = "{prefix}"
[database]
url = "{url}"
[trace]
kafka = false
[gateway]
listen = "127.0.0.1:0"
health_address = "127.0.0.1:0"
"""
MAIN = "from hongyan.program import main; main()"
DYING = """
import os, signal
from producer.gateway.submission import Submission
acknowledged = Submission.acknowledged
async def die(self, ready, future):
    await acknowledged(self, ready, future)
    os.kill(os.getpid(), signal.SIGKILL)
Submission.acknowledged = die
"""
"""A gateway that is killed between Kafka's acknowledgement and its answer."""
LANE = Lane("webhook", "notice")


class Place(NamedTuple):
    """A configuration, a key, and the way to look into both sides."""

    config: Path
    token: str
    database: Database
    kafka: KafkaSettings

    def records(self) -> list[Any]:
        return list(read_topic(self.kafka, LANE.topic(self.kafka.topic_prefix)))


class Running(NamedTuple):
    process: subprocess.Popen[str]
    url: str
    health: str

    def send(self, token: str, body: Any = NOTICE, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.url}/v1/notifications"
        return httpx.post(url, json=body, headers=bearer(token) | named, timeout=20)

    def connect(self) -> socket.socket:
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=20)


@pytest.fixture
def place(
    kafka_bootstrap: str, topic_prefix: str, ledger_database: str, tmp_path: Path
) -> Iterator[Place]:
    kafka = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    apply(kafka, [LANE], Wish(partitions=2))
    config = tmp_path / "hongyan.toml"
    config.write_text(
        CONFIG.format(bootstrap=kafka_bootstrap, prefix=topic_prefix, url=ledger_database)
    )
    database = Database(database_url(ledger_database))
    store = KeyStore(database, clock_of(database))
    with database.begin() as connection:
        made = store.add(
            connection, "shop", terms_of(["send", "read"], [], 1e5, 100_000), by="test"
        )
    yield Place(config, made.token, database, kafka)
    database.close()


@contextmanager
def running(place: Place, before: str = "") -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", before + MAIN, "-c", str(place.config), "gateway"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if "gateway_started" in line:
                break
        assert "gateway_started" in said[-1], said
        started = json.loads(said[-1])
        yield Running(process, *(f"http://{started[name]}" for name in ("address", "health")))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_killed_between_broker_and_answer_a_retry_elsewhere_makes_one_notification(
    place: Place,
) -> None:
    with running(place, DYING) as dying, running(place) as other:
        with pytest.raises(httpx.HTTPError):
            dying.send(place.token, idempotency_key="k1")
        assert dying.process.wait(10) == -signal.SIGKILL
        at_work = other.send(place.token, idempotency_key="k1")
        assert at_work.status_code == 409
        with place.database.begin() as connection:  # its lease lapses
            connection.execute(text("UPDATE gateway_requests SET lease_until = 0"))
        answer = other.send(place.token, idempotency_key="k1")
        assert answer.status_code == 202
        records = place.records()
        assert len(records) == 2
        first, second = ((one.key(), one.value(), one.partition()) for one in records)
        assert first == second
        assert decode(records[0].value()).id == answer.json()["id"]


def test_every_202_is_in_kafka_after_kill_9_in_mid_stream(place: Place) -> None:
    accepted: set[str] = set()
    with running(place) as gateway, ThreadPoolExecutor(4) as pool:

        def stream() -> None:
            while True:
                try:
                    answer = gateway.send(place.token)
                except httpx.HTTPError:
                    return
                assert answer.status_code == 202
                accepted.add(answer.json()["id"])
                if len(accepted) == 60:
                    gateway.process.kill()

        for one in [pool.submit(stream) for _ in range(4)]:
            one.result(60)
    assert len(accepted) >= 60
    assert accepted <= {decode(one.value()).id for one in place.records()}


def test_sigterm_answers_what_is_under_way_and_ends_in_order(place: Place) -> None:
    with running(place) as gateway:
        assert httpx.get(f"{gateway.health}/readyz").status_code == 200
        with gateway.connect() as client:
            body = json.dumps(NOTICE).encode()
            head = (
                f"POST /v1/notifications HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {place.token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            client.sendall(head.encode() + body[:10])
            httpx.get(f"{gateway.url}/openapi.json")  # the loop has read the half before it
            gateway.process.send_signal(signal.SIGTERM)
            client.sendall(body[10:])
            assert client.recv(4096).startswith(b"HTTP/1.1 202")
        assert gateway.process.wait(20) == 0
    assert len(place.records()) == 1


def test_metrics_and_health_are_at_an_address_of_their_own(place: Place) -> None:
    with running(place) as gateway:
        assert gateway.send(place.token).status_code == 202
        shown = httpx.get(f"{gateway.health}/metrics").text
        assert 'hongyan_gateway_accepted_total{lane="webhook.notice"} 1.0' in shown
        assert httpx.get(f"{gateway.health}/healthz").status_code == 200
        assert httpx.get(f"{gateway.url}/metrics").status_code == 404


def test_a_head_without_end_is_bounded(place: Place) -> None:
    with running(place) as gateway, gateway.connect() as client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nX: " + b"x" * (4 * HEAD_BYTES))
        assert b"400" in client.recv(4096)


def test_a_stranger_sends_no_body(place: Place) -> None:
    with running(place) as gateway, gateway.connect() as client:
        head = b"POST /v1/notifications HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        client.sendall(head)
        assert client.recv(4096).startswith(b"HTTP/1.1 401")
