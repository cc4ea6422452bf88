"""An outage of Kafka is told from one topic's trouble, and ends with the first row that may go."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from backends.settings import RelaySettings, Settings, TraceSettings
from hongyan_client.errors import NotDelivered, SendFailed, SendInDoubt
from hongyan_client.records import OnBatchEnd, Record
from producer.relay import process
from producer.relay.outage import LONGEST_PAUSE_S, KafkaOutage
from sending.runtime.exit_codes import EXIT_DONE
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace, notice
from tests.producer.relay.processes import until
from tests.producer.relay.running import RelayRun

AWAY = SendInDoubt("no answer in time", "msg_timed_out")
WITHIN_S = 20.0


class OneBadTopic(Broker):
    """Answers records for e-mail with a failure, and acknowledges all others."""

    def __init__(self, failure: SendFailed) -> None:
        super().__init__()
        self.email = failure

    def publish_batch(
        self, records: Sequence[Record], on_end: OnBatchEnd, deadline_s: float
    ) -> int:
        self.came += records
        for number, record in enumerate(records):
            bad = ".email." in record.topic
            on_end(number, self.email if bad else self._place_of(record))
        return len(records)

    def close(self, timeout_s: float = 0.0) -> int:
        return 0


def email(place: OutboxPlace) -> str:
    asked = {**notice(), "channel": "email", "receivers": ["li@example.com"]}
    with place.engine.begin() as connection:
        return place.outbox.add(connection, asked).id


@pytest.mark.parametrize("code", ["unknown_topic_or_part", "topic_authorization_failed"])
def test_what_kafka_says_of_one_topic_is_no_outage(place: OutboxPlace, code: str) -> None:
    message_id = email(place)
    run = RelayRun(place.store, OneBadTopic(NotDelivered("not this topic", code)))
    run.step()
    assert place.states() == {message_id: "PENDING"}
    assert not run.outage.lasts


def test_a_producer_without_any_right_is_an_outage(sqlite_place: OutboxPlace) -> None:
    email(sqlite_place)
    refused = NotDelivered("grant IDEMPOTENT_WRITE", "cluster_authorization_failed")
    run = RelayRun(sqlite_place.store, OneBadTopic(refused))
    run.step()
    assert run.outage.lasts


def test_a_topic_whose_records_time_out_keeps_no_other_one_waiting(place: OutboxPlace) -> None:
    """A record for a topic that is not there may also end by the delivery timeout."""
    rows = [email(place) for _ in range(15)]
    run = RelayRun(place.store, OneBadTopic(AWAY))
    run.step()
    assert run.outage.lasts
    for one in rows:
        place.end_lease(one)
    code = place.add()
    run.step()
    assert place.states()[code] == "SENT"
    assert run.outage.pause_s == 0
    assert sorted(place.row(one).attempt for one in rows) == [1] * 14 + [2]


def test_rows_behind_the_head_of_their_key_keep_no_row_waiting_after_an_outage(
    place: OutboxPlace,
) -> None:
    head, *rest = [place.add("order-1") for _ in range(6)]
    broker = Broker()
    broker.failure = AWAY
    run = RelayRun(place.store, broker, batch=2)
    run.step()
    assert run.outage.lasts
    place.set(head, "next_at = next_at + 1000000")  # in its back-off, as all of its key
    for one in rest:
        place.end_lease(one)
    free = place.add()
    broker.failure = None
    run.step()
    assert place.states()[free] == "SENT"
    assert run.outage.pause_s == 0


def test_a_mark_that_ends_the_outage_ends_the_pause(sqlite_place: OutboxPlace) -> None:
    broker = Broker()
    run = RelayRun(sqlite_place.store, broker, monotonic=lambda: 0.0)  # no pause ends by itself
    for _ in range(12):
        run.outage.note(0, 1)
    assert run.outage.pause_s == LONGEST_PAUSE_S
    pausing = threading.Thread(target=run.relay._rest, args=(1,), daemon=True)
    pausing.start()
    sqlite_place.add()
    run.step()
    pausing.join(WITHIN_S)
    assert not pausing.is_alive()


def test_one_acknowledgement_ends_an_outage() -> None:
    outage = KafkaOutage()
    outage.note(0, 3)
    outage.note(0, 0)  # refused for what it is: nothing is known
    assert outage.lasts
    outage.note(1, 2)
    assert outage.pause_s == 0


def test_a_relay_that_is_told_to_end_waits_for_no_look(
    sqlite_place: OutboxPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = OneBadTopic(AWAY)
    monkeypatch.setattr(process, "_publisher", lambda _settings: broker)
    relay = RelaySettings(
        outbox_url=sqlite_place.url, poll_s=300.0, drain_s=300.0, health_address="127.0.0.1:0"
    )
    settings = Settings(relay=relay, trace=TraceSettings(kafka=False, database=False))
    stop, codes = threading.Event(), list[int]()
    serving = threading.Thread(
        target=lambda: codes.append(process.run_relay(settings, stop)), daemon=True
    )
    message_id = sqlite_place.add()
    serving.start()
    until(lambda: sqlite_place.states() == {message_id: "SENT"})
    serving.join(0.5)  # by then it waits for its next look
    stop.set()
    serving.join(WITHIN_S)
    assert codes == [EXIT_DONE]


def test_a_wait_that_begins_after_the_end_was_told_ends_at_once(sqlite_place: OutboxPlace) -> None:
    run = RelayRun(sqlite_place.store, Broker(), poll_s=300.0)
    run.signals.stop.set()
    run.signals.wake.set()
    run.relay.run_once()  # its claim was under way, and clears `wake`
    resting = threading.Thread(target=run.relay._rest, args=(0,), daemon=True)
    resting.start()
    resting.join(WITHIN_S)
    assert not resting.is_alive()
