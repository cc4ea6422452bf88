"""Bodies and dead letters of found deliveries, on a real broker."""

from __future__ import annotations

import time

import pytest

from backends.kafka.clients import AdminClient, KafkaUnavailable, TopicPartition, producer
from backends.kafka.topic_reader import records_at
from backends.settings import KafkaSettings
from message.delivery import Origin
from recovery.lost.records import MARGIN_MS, LostRecords
from sending.dead_letters.headers import ORIGIN
from tests.harness.raw_headers import produce_named

RECORDS = 1_300


@pytest.fixture
def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    return KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)


def made(settings: KafkaSettings, name: str, partitions: int = 2) -> str:
    """A topic of so many partitions."""
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    topic = f"{settings.topic_prefix}.{name}"
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)
    return topic


def produce(settings: KafkaSettings, topic: str, count: int, partition: int = 0) -> None:
    client = producer(settings)
    for number in range(count):
        client.produce(topic, value=f"{partition}-{number}".encode(), partition=partition)
    assert client.flush(30) == 0


def test_records_are_read_at_their_places_and_those_that_are_gone_are_left_out(
    settings: KafkaSettings,
) -> None:
    topic = made(settings, "dispatch.sms.notice")
    produce(settings, topic, RECORDS)
    produce(settings, topic, 10, partition=1)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 100)]).values():
        future.result(30)
    wanted = [(0, 99), (0, 100), (0, 101), (0, 1_299), (0, 1_300), (1, 0), (1, 9), (7, 0)]
    found = LostRecords(settings).bodies({Origin(topic, p, o) for p, o in wanted})
    assert {(o.partition, o.offset): body for o, body in found.items()} == {
        place: f"{place[0]}-{place[1]}".encode()
        for place in wanted
        if place not in ((0, 99), (0, 1_300), (7, 0))
    }


def test_a_topic_that_is_gone_has_no_records(settings: KafkaSettings) -> None:
    assert LostRecords(settings).bodies({Origin(f"{settings.topic_prefix}.gone", 0, 0)}) == {}
    assert records_at(settings, []) == {}


def test_dead_letters_are_known_by_their_origin_since_the_run(settings: KafkaSettings) -> None:
    topic = made(settings, "dead", 1)
    client, now = producer(settings), time.time_ns() // 1_000_000
    for age_ms, origin in ((2 * MARGIN_MS, "t/0/1"), (0, "t/0/2"), (0, "t/0/3")):
        headers: list[tuple[str, str | bytes | None]] = [
            (ORIGIN, b"the producer's own"),
            (ORIGIN, origin.encode()),
        ]
        client.produce(topic, value=b"x", headers=headers, timestamp=now - age_ms)
    client.produce(topic, value=b"foreign")
    assert client.flush(30) == 0
    produce_named(settings.bootstrap, topic, "größe".encode("latin-1"), b"foreign, too")
    records = LostRecords(settings)
    assert records.dead(now) == {"t/0/2", "t/0/3"}
    assert records.dead(now - 2 * MARGIN_MS) == {"t/0/1", "t/0/2", "t/0/3"}
    assert records.dead(now) == {"t/0/1", "t/0/2", "t/0/3"}, "read once a round"
    records.begin()
    assert records.dead(now) == {"t/0/2", "t/0/3"}


def test_without_dead_letters_there_are_none(settings: KafkaSettings) -> None:
    assert LostRecords(settings).dead(0) == frozenset()


def test_a_broker_that_is_away_is_told() -> None:
    away = LostRecords(KafkaSettings(bootstrap="127.0.0.1:9"))
    with pytest.raises(KafkaUnavailable):
        away.dead(0)
    with pytest.raises(KafkaUnavailable):
        away.bodies({Origin("t", 0, 0)})
