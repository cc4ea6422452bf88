"""Outcome events on a real broker: keys, ids, and what happens without the topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from backends.kafka import clients as kafka
from backends.kafka import topics as kafka_topics
from backends.settings import KafkaSettings, SettingsError
from idempotency.outcomes.outbox import OutcomeBatch
from idempotency.outcomes.statements import EndedRow
from message.vocabulary import Lane, outcome_topic
from recovery.outcomes.events import ReadyEvent, ready_events
from recovery.outcomes.topic import EVENT_ID, OutcomeTopic, topic_producer
from tests.harness import await_

LANE = Lane("sms", "notice")


@pytest.fixture
def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    return KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)


def events(*keys: str | None) -> list[ReadyEvent]:
    """One batch each; a key is the ordering key."""
    batches = [
        OutcomeBatch(number, 0, [_end(number, key)]) for number, key in enumerate(keys, start=1)
    ]
    return ready_events(batches, b"k" * 32, lambda end: bytes.fromhex(end.receiver).decode())


def _end(number: int, ordering_key: str | None) -> EndedRow:
    return EndedRow(
        *(f"{number:032}", f"message-{number}", "订单", ordering_key, "sms.notice", "SENT", None),
        *("p", "main", 1, 2, 1_790_000_000_000, 1_790_000_001_000, None),
        b"+8613800000001".hex(),
    )


def topic_of(settings: KafkaSettings) -> OutcomeTopic:
    return OutcomeTopic(topic_producer(settings, "test"), outcome_topic(settings.topic_prefix))


def read(settings: KafkaSettings, count: int) -> list[Any]:
    own = msgspec.structs.replace(settings, group_id=f"{settings.topic_prefix}-reader")
    consumer = kafka.consumer(own, protocol="classic")
    consumer.subscribe([outcome_topic(settings.topic_prefix)])
    found: list[Any] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
        return len(found) >= count

    try:
        await_(enough)
    finally:
        consumer.close()
    return found


def test_events_are_keyed_as_their_notifications_and_name_themselves(
    settings: KafkaSettings,
) -> None:
    kafka_topics.apply(settings, [LANE], kafka_topics.Wish(partitions=1, outcome_partitions=3))
    made = events("shop-1", None, "shop-1")
    assert topic_of(settings).publish(made) == {1, 2, 3}
    found = read(settings, 3)
    by_id = {json.loads(m.value())["event_id"]: m for m in found}
    assert {dict(m.headers())[EVENT_ID].decode() for m in found} == set(by_id)
    first, second, third = (by_id[one.event.event_id] for one in made)
    assert [m.key() for m in (first, second, third)] == [b"shop-1", b"message-2", b"shop-1"]
    assert first.partition() == third.partition()
    assert json.loads(first.value())["biz_id"] == "订单"


def test_without_the_topic_events_are_held_and_go_on_once_it_is_there(
    settings: KafkaSettings,
) -> None:
    target = topic_of(settings)
    with capture_logs() as logs:
        assert target.publish(events(None)) == set()
        assert target.publish(events(None)) == set()
    (held,) = [line for line in logs if line["event"] == "outcomes_held"]
    assert "topics apply" in held["what"]
    kafka_topics.apply(settings, [LANE], kafka_topics.Wish(partitions=1, outcome_partitions=1))
    with capture_logs() as logs:
        await_(lambda: target.publish(events(None)) == {1})
    assert [line["event"] for line in logs] == ["outcomes_go_on"]


class Producer:
    """Acknowledges as told, without a broker."""

    def __init__(self, error_of: Callable[[bytes], Any], *, full: bool = False) -> None:
        self._error_of, self._full = error_of, full
        self._reports: list[Callable[[], None]] = []

    def produce(
        self, _topic: str, *, key: bytes, on_delivery: Callable[..., None], **_: Any
    ) -> None:
        if self._full:
            raise BufferError
        error = self._error_of(key)
        if isinstance(error, str) and error == "raised":
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError.MSG_SIZE_TOO_LARGE))
        if not isinstance(error, str):
            self._reports.append(lambda: on_delivery(error, None))

    def poll(self, _timeout_s: float) -> None:
        """Reports nothing."""

    def flush(self, _timeout_s: float) -> None:
        for report in self._reports:
            report()


def test_while_no_producer_can_be_made_events_are_held_and_told_once() -> None:
    """A certificate is being replaced, say: recovery goes on."""
    unusable = [SettingsError("kafka.client: no certificate at ca.pem")] * 2

    def make() -> Producer:
        if unusable:
            raise unusable.pop()
        return Producer(lambda _key: None)

    target = OutcomeTopic(make, "t")
    with capture_logs() as logs:
        published = [target.publish(events(None)) for _ in range(3)]
    assert published == [set(), set(), {1}]
    assert [line["event"] for line in logs] == ["outcomes_held", "outcomes_go_on"]
    assert logs[0]["cause"] == "kafka.client: no certificate at ca.pem"


@pytest.mark.parametrize(
    "fault", [kafka.KafkaError(kafka.KafkaError._MSG_TIMED_OUT), "raised", "lost"]
)
def test_a_batch_is_done_only_with_every_acknowledgement(fault: Any) -> None:
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer(lambda key: fault if key == b"bad" else None))
        return made[-1]

    both = OutcomeBatch(1, 0, [_end(1, "good"), _end(2, "bad")])
    good = OutcomeBatch(2, 0, [_end(3, "good")])
    target = OutcomeTopic(make, "t")
    ready = ready_events([both, good], b"k" * 32, lambda _: None)
    assert target.publish(ready) == {2}
    assert target.publish(ready[2:]) == {2}
    assert len(made) == 2  # a producer that failed is not used again


def test_a_full_producer_ends_the_call_in_time() -> None:
    ticks = iter(range(1_000))
    target = OutcomeTopic(
        lambda: Producer(lambda _: None, full=True), "t", monotonic=lambda: float(next(ticks))
    )
    assert target.publish(events("a", "b")) == set()
