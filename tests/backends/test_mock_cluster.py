"""The embedded cluster gives a first member its partitions at once, and serves without ctypes, too."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer

from backends.kafka import mock_cluster
from backends.kafka.embedded import EmbeddedKafka

DEFAULT_DELAY_S = 3.0


def seconds_to_assignment(bootstrap: str) -> float:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first"})
    assigned: list[object] = []
    consumer.subscribe(["t"], on_assign=lambda _consumer, places: assigned.append(places))
    began = time.monotonic()
    while not assigned and time.monotonic() < began + 10 * DEFAULT_DELAY_S:
        consumer.poll(0.01)
    took = time.monotonic() - began
    consumer.close()
    assert assigned
    return took


def test_the_first_member_does_not_wait_for_others() -> None:
    with EmbeddedKafka(topics=["t"]) as kafka:
        assert seconds_to_assignment(kafka.bootstrap) < DEFAULT_DELAY_S - 0.5


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_cluster_of_several_brokers_names_them_all(brokers: int) -> None:
    with EmbeddedKafka(brokers=brokers) as kafka:
        assert len(kafka.bootstrap.split(",")) == brokers
        client = Producer({"bootstrap.servers": kafka.bootstrap})
        assert len(client.list_topics(timeout=10).brokers) == brokers


def test_a_library_that_is_not_found_leaves_the_python_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mock_cluster, "_SIGNATURES", {"rd_kafka_no_such_function": (None, [])})
    bootstrap, client = mock_cluster.hosted(2)
    assert len(bootstrap.split(",")) == 2
    assert isinstance(client, Producer)
