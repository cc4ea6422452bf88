"""The consumer with librdkafka's client: pauses, partitions that go and come, a fatal error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from uuid_utils import uuid7

from backends.kafka.clients import consumer
from backends.kafka.embedded import PARTITIONS, EmbeddedKafka
from backends.settings import KafkaSettings
from idempotency.ledger import LedgerUnavailable
from lookback.consumer import ConsumerParts, ConsumerRefused, LookbackConsumer, Takes
from lookback.dead_letters import PoisonWriter
from lookback.metrics import LookbackMetrics
from lookback.store import TakenRecords
from message.lookback import CommitRecord, LookbackRecord, encode
from tests.harness.waiting import await_
from tests.harness.wire import Wire
from tests.lookback.kafka_fakes import FakeProducer
from tests.lookback.making import KIND, TERMS

TOPIC = "look_back_msg"
ALL = range(PARTITIONS)
POLL_S = 1.0
"""Longer than the first fetch of a partition takes."""


class Outage:
    """A database that is away until the client has polled so often; at each poll something happens."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self.events: list[Callable[[], None]] = []
        self.taken: list[str] = []

    def take(self, records: Sequence[LookbackRecord]) -> TakenRecords:
        if self.events:
            raise LedgerUnavailable("away")
        self.taken += [one.biz_id for one in records]
        return TakenRecords(Counter(), {})

    def poll(self, _timeout_s: float) -> Any:
        self.events.pop(0)()
        return self.client.poll(POLL_S)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


def taking(client: Any, store: Takes, topic: str) -> LookbackConsumer:
    poison = PoisonWriter(FakeProducer(), "dead")
    metrics = LookbackMetrics()
    parts = ConsumerParts(client, store, poison, {KIND: TERMS}, metrics, TopicPartition)
    return LookbackConsumer(parts, topic, 100)


class Member:
    """A look-back whose partitions a test gives and takes, as the group would."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.client: Consumer = consumer(KafkaSettings(bootstrap=bootstrap), protocol="classic")
        self.outage = Outage(self.client)
        self.taking = taking(self.outage, self.outage, TOPIC)

    def send(self, name: str) -> set[str]:
        """Sends one record to each partition. Returns their biz_ids."""
        names = [f"{name}-{partition}" for partition in ALL]
        for partition, biz_id in enumerate(names):
            record = CommitRecord(biz_type=KIND, biz_id=biz_id, tx_id=uuid7().hex)
            self.producer.produce(TOPIC, encode(record), partition=partition)
        assert self.producer.flush(20) == 0
        return set(names)

    def gains(self, offset: int) -> None:
        """As the client does it: the callback first, then the assignment."""
        places = [TopicPartition(TOPIC, partition, offset) for partition in ALL]
        self.taking._gained(self.client, places)
        self.client.assign(places)

    def loses(self) -> None:
        self.taking._gone(self.client, self.client.assignment())
        self.client.unassign()

    def takes(self, names: set[str]) -> None:
        def taken() -> bool:
            self.taking.run_once()
            return names <= set(self.outage.taken)

        await_(taken, timeout=20, what=lambda: f"taken: {self.outage.taken}")


@pytest.fixture
def member() -> Iterator[Member]:
    with EmbeddedKafka(topics=[TOPIC]) as kafka:
        member = Member(kafka.bootstrap)
        member.gains(0)
        member.takes(member.send("before"))
        yield member
        member.client.close()


def test_partitions_lost_during_an_outage_and_regained_after_it_are_read(member: Member) -> None:
    """librdkafka keeps a pause across losing and regaining a partition."""
    member.outage.events = [member.loses]
    during = member.send("during")
    await_(member.taking.run_once, what="the outage is over")
    member.gains(1)
    member.takes(during | member.send("after"))


def test_partitions_regained_during_an_outage_stay_paused_until_it_ends(member: Member) -> None:
    """A record that is polled while the database is away would be lost."""
    unread: set[str] = set()

    def regains() -> None:
        unread.update(member.send("unread"))
        member.gains(2)

    member.outage.events = [member.loses, regains]
    member.send("during")
    await_(member.taking.run_once, what="the outage is over")
    member.takes(unread)


def test_a_member_whose_id_another_one_took_ends_loudly(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The brokers fence it. The error that its poll gives then has a `fatal()` of False."""
    with closing(Wire(kafka_bootstrap, topic_prefix, topic_prefix)) as wire:
        wire.make_topic(topic_prefix, 1)
    one_id = KafkaSettings(
        bootstrap=kafka_bootstrap, group_id=topic_prefix, group_instance_id="one"
    )
    client, other = consumer(one_id, protocol="classic"), consumer(one_id, protocol="classic")
    fenced = taking(client, Outage(client), topic_prefix)
    client.subscribe([topic_prefix], on_assign=fenced._gained)

    def joined() -> bool:
        fenced.run_once()
        return fenced.assigned

    def took_over() -> None:
        other.poll(0.1)
        fenced.run_once()

    await_(joined, what="it joined")
    other.subscribe([topic_prefix])
    with pytest.raises(ConsumerRefused, match="fenced"):
        await_(took_over, timeout=30, what="it is fenced")
    client.close()
    other.close()
