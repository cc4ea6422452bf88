"""The Kafka factories at work on the embedded cluster."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from backends.kafka import clients as kafka
from backends.kafka.embedded import PARTITIONS, EmbeddedKafka
from backends.kafka.topics import TopicsRefused, Wish, apply
from backends.settings import KafkaSettings
from message.vocabulary import LANES, Lane

LANE = Lane("sms", "notice")
TOPIC = LANE.topic()
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(topics=[TOPIC]) as started:
        yield started


@pytest.fixture
def settings(cluster: EmbeddedKafka) -> KafkaSettings:
    return KafkaSettings(bootstrap=cluster.bootstrap, group_id=f"g{time.monotonic_ns()}")


def produce(settings: KafkaSettings, topic: str, values: list[bytes]) -> list[kafka.Message]:
    acknowledged: list[kafka.Message] = []
    client = kafka.producer(settings)
    for value in values:
        client.produce(topic, value=value, on_delivery=lambda _e, m: acknowledged.append(m))
    assert client.flush(PATIENCE_S) == 0
    return acknowledged


def polled(
    member: kafka.Consumer, enough: Callable[[list[kafka.Message]], bool]
) -> list[kafka.Message]:
    found: list[kafka.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, f"only {len(found)} messages came"
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def test_another_process_can_produce_consume_and_commit(settings: KafkaSettings) -> None:
    mine = {b"%d" % n for n in range(50)}
    produce(settings, TOPIC, sorted(mine))
    commits: list[list[kafka.TopicPartition]] = []
    member = kafka.consumer(
        settings, protocol="classic", on_commit=lambda _e, places: commits.append(list(places))
    )
    member.subscribe([TOPIC])
    found = polled(member, lambda messages: mine <= {m.value() for m in messages})
    place = kafka.TopicPartition(TOPIC, found[-1].partition() or 0, (found[-1].offset() or 0) + 1)
    member.commit(offsets=[place], asynchronous=True)
    polled(member, lambda _: bool(commits))
    member.close()
    assert [(p.topic, p.offset, p.error) for p in commits[0]] == [(TOPIC, place.offset, None)]


def test_the_embedded_cluster_gets_the_classic_protocol(settings: KafkaSettings) -> None:
    assert kafka.resolve_group_protocol(settings) == "classic"


def test_a_named_protocol_is_not_questioned() -> None:
    nowhere = KafkaSettings(bootstrap="127.0.0.1:1", group_protocol="consumer")
    assert kafka.resolve_group_protocol(nowhere) == "consumer"


def test_a_broker_that_is_there_is_not_waited_for(settings: KafkaSettings) -> None:
    with capture_logs() as logs:
        assert kafka.wait_for_broker(settings, PATIENCE_S)
    assert logs == []


def test_a_broker_that_is_away_is_said_once_and_given_up_in_time() -> None:
    nowhere = KafkaSettings(bootstrap="127.0.0.1:1")
    with capture_logs() as logs, pytest.raises(kafka.KafkaUnavailable, match=r"127\.0\.0\.1:1"):
        kafka.wait_for_broker(nowhere, timeout_s=1.5)
    assert [log["event"] for log in logs] == ["kafka_not_reachable"]


def test_waiting_for_a_broker_ends_when_asked_to() -> None:
    stop = threading.Event()
    stop.set()
    nowhere = KafkaSettings(bootstrap="127.0.0.1:1")
    assert kafka.wait_for_broker(nowhere, timeout_s=600, stop=stop) is False


def test_topics_are_made_once_and_then_exist(settings: KafkaSettings) -> None:
    first = apply(settings, LANES, Wish())
    assert len(first) == len(LANES) + 3
    assert {r.partitions for r in first} == {PARTITIONS}
    assert {r.status for r in apply(settings, LANES, Wish())} == {"exists"}


def test_more_copies_than_brokers_are_refused(settings: KafkaSettings) -> None:
    with pytest.raises(TopicsRefused, match="3 copies need 3 brokers and the cluster has 1"):
        apply(settings, [LANE], Wish(replication=3))


def test_the_cluster_ends_with_whoever_started_it() -> None:
    started = EmbeddedKafka().start()
    process = started._process
    assert process is not None
    started.stop()
    started.stop()
    assert process.returncode == 0
