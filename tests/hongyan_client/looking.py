"""Reads topics back, and holds a cluster still."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backends.kafka.embedded import PARTITIONS, EmbeddedKafka
from tests.harness.stopped import stop

PATIENCE_S = 30.0
NOWHERE = "127.0.0.1:1"


def contents(bootstrap: str, topic: str, count: int) -> list[Any]:
    """The first `count` records of the topic, in the order of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "log_level": 0})
    found: list[Any] = []
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} records"
            polled = consumer.poll(0.1)
            if polled is not None and polled.error() is None:
                found.append(polled)
    finally:
        consumer.close()
    return found


def make_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin.create_topics([wanted])[topic].result(PATIENCE_S)


@contextmanager
def paused(cluster: EmbeddedKafka) -> Iterator[None]:
    """Nobody answers at the cluster's address inside."""
    assert cluster._process is not None
    stop(cluster._process.pid)
    try:
        yield
    finally:
        cluster._process.send_signal(signal.SIGCONT)
