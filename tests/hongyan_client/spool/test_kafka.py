"""The spool before a cluster that stops answering and comes back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.publisher import Publisher
from hongyan_client.spool import spool as spool_module
from hongyan_client.spool.spool import Spool
from tests.harness.stopped import stop
from tests.hongyan_client.spool.making import NEVER, record

KEYS, COUNT = 10, 200


def read_all(bootstrap: str, count: int) -> list[tuple[str, int]]:
    """Returns key and number of the topic's records, each key in its order, once all numbers are there."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    found: list[tuple[str, int]] = []
    try:
        while len({number for _, number in found}) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.append(((message.key() or b"").decode(), int(message.value() or b"")))
    finally:
        consumer.close()
    return found


def test_a_cluster_that_is_away_gets_everything_in_order_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "LONGEST_PAUSE_S", 0.2)
    with EmbeddedKafka(topics=["orders"]) as cluster:
        publisher = Publisher(cluster.bootstrap, client_id="test", delivery_timeout_s=1.5)
        assert publisher.publish(record(0, "0", "orders"), 10).result(30)
        spool = Spool(tmp_path / "spool", publisher)
        assert cluster._process is not None
        stop(cluster._process.pid)
        try:
            for number in range(1, COUNT):
                spool.keep(record(number, str(number % KEYS), "orders"), NEVER)
            assert spool.drain(2.5) == COUNT - 1
        finally:
            os.kill(cluster._process.pid, signal.SIGCONT)
        assert spool.drain(60) == 0
        spool.close(10)
        publisher.close(5)
        found = read_all(cluster.bootstrap, COUNT)
    for key in range(KEYS):
        numbers = [number for one, number in found if one == str(key)]
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
