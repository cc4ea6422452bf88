"""Rows that the topic holds after a checkpoint, among records of others."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from backends.kafka import topic_reader
from backends.kafka.embedded import EmbeddedKafka
from backends.settings import KafkaSettings
from producer.campaigns.contract import CampaignRun, RunState
from producer.campaigns.row_ids import row_id
from producer.campaigns.topic_tail import TopicTail
from tests.harness.raw_headers import produce_named

TOPIC = "hongyan.dispatch.sms.marketing"


def run_at(done: int) -> CampaignRun:
    """An open run with a checkpoint at the topic's begin."""
    return CampaignRun(
        id="r-1",
        campaign_id="c-1",
        state=RunState.OPEN,
        version=1,
        due_at=0,
        started_at=0,
        updated_at=0,
        done=done,
        positions={0: 0},
    )


def test_rows_are_found_beside_a_record_whose_header_is_not_utf_8() -> None:
    run = run_at(10)
    with EmbeddedKafka(topics=[TOPIC]) as kafka:
        produce_named(kafka.bootstrap, TOPIC, "größe".encode("latin-1"), b"foreign")
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in (9, 11, 12):
            headers: list[tuple[str, str | bytes | None]] = [
                ("hongyan-id", row_id(run.id, number).encode())
            ]
            producer.produce(TOPIC, b"row", headers=headers, partition=0)
        producer.flush(30)
        tail = TopicTail(KafkaSettings(bootstrap=kafka.bootstrap), TOPIC, window=100)
        assert tail.rows_there(run) == {11, 12}


def test_a_long_tail_asks_before_each_batch_whether_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_reader, "_BATCH", 10)
    asked = list[int]()

    def keep_going() -> None:
        asked.append(1)
        if len(asked) == 6:
            raise TimeoutError

    with EmbeddedKafka(topics=[TOPIC]) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for _ in range(200):
            producer.produce(TOPIC, b"row", partition=0)
        producer.flush(30)
        tail = TopicTail(KafkaSettings(bootstrap=kafka.bootstrap), TOPIC, window=100)
        with pytest.raises(TimeoutError):
            tail.rows_there(run_at(10), keep_going)
    assert len(asked) == 6
