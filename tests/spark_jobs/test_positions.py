"""Positions, as a real cluster and a real group have them."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from backends.kafka.clients import KafkaUnavailable
from backends.settings import KafkaSettings
from dispatcher.kafka.offset_metadata import OffsetRange, encode
from hongyan.spark.positions import read_positions
from spark_jobs.positions import PartitionPosition, Positions, positions_from
from tests.harness.notifications import notification
from tests.harness.wire import Wire

LANE = "webhook.notice"


@pytest.fixture
def kafka(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=kafka_bootstrap, topic_prefix=topic_prefix, group_id=topic_prefix
    )


@pytest.fixture
def wire(kafka: KafkaSettings) -> Wire:
    return Wire(kafka.bootstrap, kafka.topic_prefix, kafka.group_id)


def commit(
    kafka: KafkaSettings, topic: str, partition: int, offset: int, metadata: str = ""
) -> None:
    names = {"bootstrap.servers": kafka.bootstrap, "group.id": kafka.group_id, "log_level": 2}
    with closing(Consumer(names)) as member:
        place = TopicPartition(topic, partition, offset, metadata)
        member.commit(offsets=[place], asynchronous=False)


def by_partition(found: Positions, topic: str) -> dict[int, PartitionPosition]:
    return {one.partition: one for one in found.partitions if one.topic == topic}


def test_a_partition_has_its_commit_its_runs_and_its_log(kafka: KafkaSettings, wire: Wire) -> None:
    topic = wire.topic(LANE)
    wire.make_topic(topic, 3)
    wire.make_topic(f"{kafka.topic_prefix}.dead", 1)
    wire.send([notification() for _ in range(20)], 0)
    commit(kafka, topic, 0, 8, encode(8, [OffsetRange(10, 12), OffsetRange(15, 16)]))
    commit(kafka, topic, 1, 5)
    wire.truncate(topic, 0, 4)
    before = int(time.time() * 1000)
    found = read_positions(kafka)
    assert before - 1_000 <= found.taken_at <= time.time() * 1000
    first, second, third = by_partition(found, topic).values()
    assert first.topic_id
    assert first == PartitionPosition(
        topic, first.topic_id, LANE, 0, 8, 4, 20, [(10, 12), (15, 16)]
    )
    # A commit beyond the log's end is of an earlier log of that name.
    assert (second.committed, second.first, second.end) == (None, 0, 0)
    assert third.committed is None
    dead = by_partition(found, f"{kafka.topic_prefix}.dead")[0]
    assert (dead.lane, dead.committed, dead.end) == (None, None, 0)
    assert positions_from(found.as_json()) == found


def test_a_topic_made_anew_is_another_one_and_the_old_one_is_gone(
    kafka: KafkaSettings, wire: Wire
) -> None:
    topic = wire.topic(LANE)
    wire.make_topic(topic, 1)
    wire.send([notification() for _ in range(3)], 0)
    commit(kafka, topic, 0, 2)
    earlier = read_positions(kafka)
    assert not earlier.gone
    wire.delete_topic(topic)
    deleted = read_positions(kafka, earlier)
    assert list(deleted.gone) == list(earlier.partitions)
    assert not by_partition(deleted, topic)
    wire.make_topic(topic, 2)
    anew = read_positions(kafka, earlier)
    assert list(anew.gone) == list(earlier.partitions)
    assert {one.topic_id for one in anew.partitions} != {one.topic_id for one in earlier.partitions}
    assert by_partition(anew, topic)[0].committed is None


def test_the_end_is_that_of_committed_records(kafka: KafkaSettings, wire: Wire) -> None:
    topic = wire.topic(LANE)
    wire.make_topic(topic, 1)
    wire.transaction(LANE, [([notification(), notification()], True)])
    position = by_partition(read_positions(kafka), topic)[0]
    assert position.end == 3, "two records and the transaction's marker"


def test_a_cluster_that_is_away_is_said() -> None:
    with pytest.raises(KafkaUnavailable):
        read_positions(KafkaSettings(bootstrap="127.0.0.1:9"))


def test_no_positions_are_none() -> None:
    assert positions_from("") is None
