"""How long a real broker keeps the lanes' topics, as the archive has to know it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from backends.kafka.clients import KafkaUnavailable, admin
from backends.kafka.retention import TopicKeptForever, topic_days
from backends.settings import KafkaSettings, RecoverySettings, Settings
from message.ids import new_id
from tests.harness import await_

DAY_MS = 86_400_000


def settings(bootstrap: str, **recovery: Any) -> Settings:
    kafka = KafkaSettings(bootstrap=bootstrap, topic_prefix=f"k{new_id()[-12:]}")
    return Settings(kafka=kafka, recovery=RecoverySettings(**recovery))


def make(of: Settings, lane: str, **config: int) -> None:
    name = f"{of.kafka.topic_prefix}.dispatch.{lane}"
    asked = {key.replace("_", "."): str(value) for key, value in config.items()}
    topic = NewTopic(name, 1, 1, config=asked)
    client = admin(of.kafka)  # kept until it answered
    client.create_topics([topic], operation_timeout=30)[name].result()
    # The broker tells of a topic a moment after it made it.
    await_(lambda: name in client.list_topics(timeout=10).topics, what=f"{name} is listed")


def test_the_longest_kept_topic_counts_with_its_segments(
    kafka_bootstrap: str,
) -> None:
    one = settings(kafka_bootstrap)
    assert topic_days(one, 9) == 9, "no topic of ours is there yet"
    make(one, "sms.notice", retention_ms=8 * DAY_MS, segment_ms=7 * DAY_MS)
    assert topic_days(one, 8) == 15
    make(one, "email.notice", retention_ms=30 * DAY_MS, segment_ms=DAY_MS // 2)
    assert topic_days(one, 8) == 31


def test_a_topic_that_is_kept_for_ever_is_named(kafka_bootstrap: str) -> None:
    one = settings(kafka_bootstrap)
    make(one, "sms.notice", retention_ms=-1)
    with pytest.raises(TopicKeptForever, match=r"dispatch\.sms\.notice for ever"):
        topic_days(one, 8)


def test_a_broker_that_is_away_is_no_answer_and_the_setting_is_one() -> None:
    with pytest.raises(KafkaUnavailable, match=r"recovery\.topic_days"):
        topic_days(settings("127.0.0.1:1"), 8)
    assert topic_days(settings("127.0.0.1:1", topic_days=20), 8) == 20
