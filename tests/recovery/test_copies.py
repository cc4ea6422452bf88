"""Copies on a real broker: what is made of a topic that came later."""

from __future__ import annotations

import msgspec
import pytest

from backends.kafka import topics as kafka_topics
from backends.settings import KafkaSettings
from message.envelope import Notification
from message.vocabulary import Lane
from recovery.resend.copies import CopyProducer
from tests.harness import await_
from tests.harness.notifications import notification

LANES = [Lane("webhook", kind) for kind in ("notice", "marketing")]
WISH = kafka_topics.Wish(partitions=1, outcome_partitions=1)


@pytest.fixture
def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    return KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)


def test_a_topic_that_was_made_after_the_first_copy_is_found(settings: KafkaSettings) -> None:
    accepted: list[Notification] = []
    copies = CopyProducer(settings, lambda copy, _record: accepted.append(copy))
    one, other = (msgspec.to_builtins(notification(lane.name)) for lane in LANES)
    kafka_topics.apply(settings, LANES[:1], WISH)
    assert copies.produce([one]) == {one["id"]}
    assert copies.produce([one, other]) == {one["id"]}
    kafka_topics.apply(settings, LANES, WISH)
    await_(lambda: copies.produce([other]) == {other["id"]})
    assert {copy.id for copy in accepted} == {one["id"], other["id"]}
