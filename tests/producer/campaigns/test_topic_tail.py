"""Rows that the topic holds after a checkpoint, among records of others."""

from __future__ import annotations

from confluent_kafka import Producer

from backends.kafka.embedded import EmbeddedKafka
from backends.settings import KafkaSettings
from producer.campaigns.contract import CampaignRun, RunState
from producer.campaigns.row_ids import row_id
from producer.campaigns.topic_tail import TopicTail
from tests.harness.raw_headers import produce_named

TOPIC = "hongyan.dispatch.sms.marketing"


def test_rows_are_found_beside_a_record_whose_header_is_not_utf_8() -> None:
    run = CampaignRun(
        id="r-1",
        campaign_id="c-1",
        state=RunState.OPEN,
        version=1,
        due_at=0,
        started_at=0,
        updated_at=0,
        done=10,
        positions={0: 0},
    )
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
