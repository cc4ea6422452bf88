"""Trace events `accepted`: by `hongyan send`, by copies and by replays, as the trace topic has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.kafka import clients
from backends.kafka.topic_reader import read_topic
from backends.settings import KafkaSettings, load
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import deliveries_of
from message.envelope import Notification, Template, decode, encode
from message.keys import delivery_key
from message.outcome_event import receiver_hash
from message.states import Event
from message.vocabulary import dead_letter_topic, lane_named, trace_topic
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, settle, worker
from tracing.events import Stage, TraceEvent

HASH_KEY = "of receivers, in this test and nowhere else"
TEMPLATE = "login-code"
RECEIVERS = ("+8613800000001", "+8613800000002")


class Topics:
    """The topics of one test, read whole."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        lane = lane_named("sms.notice")
        assert lane is not None
        self.kafka, self.prefix = KafkaSettings(bootstrap=bootstrap), prefix
        self.dispatch = lane.topic(prefix)

    def records(self) -> list[Any]:
        return list(read_topic(self.kafka, self.dispatch))

    def accepted(self) -> list[TraceEvent]:
        """Returns the events, each of which must be `accepted`."""
        found = [
            event
            for message in read_topic(self.kafka, trace_topic(self.prefix))
            for event in msgspec.json.decode(message.value() or b"[]", type=list[TraceEvent])
        ]
        assert {event.stage for event in found} <= {Stage.ACCEPTED}
        return found

    def bury(self, value: bytes, offset: int) -> str:
        """Produces a dead letter as a worker does. Returns its origin."""
        origin = f"{self.dispatch}/0/{offset}"
        producer = clients.producer(self.kafka)
        headers: list[tuple[str, str | bytes | None]] = [
            ("hongyan-id", b"m-header"),
            ("hongyan-dead-reason", b"bad_ttl"),
            ("hongyan-dead-origin", origin.encode()),
        ]
        producer.produce(dead_letter_topic(self.prefix), value=value, headers=headers)
        assert producer.flush(10) == 0
        return origin


@pytest.fixture
def topics(
    kafka_bootstrap: str,
    topic_prefix: str,
    folder: Path,
    hongyan: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> Topics:
    """Topics on the real broker: the embedded one acknowledges each record with the same time."""
    (folder / "hash_key").write_text(HASH_KEY + "\n")
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", kafka_bootstrap)
    monkeypatch.setenv("HONGYAN_KAFKA__TOPIC_PREFIX", topic_prefix)
    monkeypatch.setenv("HONGYAN_OUTCOMES__HASH_KEY_FILE", str(folder / "hash_key"))
    monkeypatch.setenv("HONGYAN_DATABASE__URL", f"sqlite:///{folder / 'ledger.db'}")
    make_ledger()
    assert hongyan("topics", "apply", "--lanes", "sms.notice").code == 0
    return Topics(kafka_bootstrap, topic_prefix)


@pytest.fixture
def ledger(topics: Topics) -> Iterator[SqlLedger]:
    with closing(open_ledger(load())) as opened:
        opened.register(worker("w1"))
        yield opened


def check(event: TraceEvent, record: Any, receiver: str) -> None:
    """Checks all fields that the record decides. No call was made and no policy applied yet."""
    one = decode(record.value())
    assert event.message_id == one.id
    assert event.delivery_key == delivery_key(one.id, "sms", receiver)
    assert event.receiver_hash == receiver_hash(HASH_KEY.encode(), "sms", receiver)
    assert event.receiver == f"{receiver[:6]}***{receiver[-4:]}"
    assert (event.biz_id, event.lane, event.template) == ("order-1", "sms.notice", TEMPLATE)
    assert event.created_at == one.created_at > 0
    assert event.origin == f"{record.topic()}/{record.partition()}/{record.offset()}"
    assert event.at == record.timestamp()[1]
    assert (event.attempt, event.account, event.policy_version, event.state) == (0, "", "", "")


def test_a_send_is_told_for_each_delivery_once_kafka_has_it(hongyan: Run, topics: Topics) -> None:
    to = [word for receiver in RECEIVERS for word in ("--to", receiver)]
    flags = ("--lane", "sms.notice", "--biz-id", "order-1", "--template", TEMPLATE)
    assert hongyan("send", *flags, *to).code == 0
    (record,) = topics.records()
    events = topics.accepted()
    assert len(events) == len(RECEIVERS)
    for event, receiver in zip(events, RECEIVERS, strict=True):
        check(event, record, receiver)
        assert (event.worker, event.detail) == ("send", None)


def test_a_copy_is_told_with_its_original(hongyan: Run, topics: Topics, ledger: SqlLedger) -> None:
    original = Notification(
        id="m-1",
        channel="sms",
        kind="notice",
        receivers=[RECEIVERS[0]],
        template=Template(TEMPLATE),
        biz_id="order-1",
        created_at=ledger.now_ms(),
    )
    made = deliveries_of(original, encode(original), expires_at=original.created_at + 60_000)
    (item,) = claimed(ledger, *made)
    assert settle(ledger, item, Event.BUDGET_SPENT, reason="attempts_spent")
    assert hongyan("resend", "--biz", "order-1", "--new-id", "--job", "j1").code == 0
    (record,) = topics.records()
    (event,) = topics.accepted()
    check(event, record, RECEIVERS[0])
    assert event.message_id != item.notification.id
    assert event.detail == f"copy of {item.notification.id}"
    assert event.worker == "operator"


def test_a_replay_is_told_with_its_dead_letter(hongyan: Run, topics: Topics) -> None:
    body = {
        "v": 1,
        "id": "m-1",
        "channel": "sms",
        "kind": "notice",
        "receivers": [RECEIVERS[0]],
        "biz_id": "order-1",
        "template": {"id": TEMPLATE},
        "created_at": 1_795_000_000_000,
    }
    origin = topics.bury(msgspec.json.encode(body), 1)
    assert hongyan("dead", "replay", origin, "--yes").code == 0
    (record,) = topics.records()
    (event,) = topics.accepted()
    check(event, record, RECEIVERS[0])
    assert (event.worker, event.detail) == ("replay", f"replay of the dead letter of {origin}")


def test_a_replay_that_nobody_can_read_is_told_by_its_header(hongyan: Run, topics: Topics) -> None:
    origin = topics.bury(b"call +8613800000002", 2)
    assert hongyan("dead", "replay", origin, "--yes").code == 0
    (record,) = topics.records()
    (event,) = topics.accepted()
    assert (event.message_id, event.delivery_key, event.lane) == ("m-header", "", "sms.notice")
    assert event.origin == f"{record.topic()}/{record.partition()}/{record.offset()}"
    assert (event.created_at, event.receiver, event.template) == (0, "", "")
    assert "13800000002" not in str(event)
