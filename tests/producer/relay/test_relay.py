"""One relay and two of them, over the three databases and a broker that the test answers for."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from hongyan_client.errors import BufferFull, NotDelivered, SendInDoubt
from hongyan_client.outbox import RetryTerms
from hongyan_client.outbox.engine import OutboxWaits, outbox_engine
from hongyan_client.outbox.errors import OutboxAway
from hongyan_client.outbox.publication import backoff_ms
from hongyan_client.outbox.store import ClaimedRow, FailedRow
from hongyan_client.records import Acknowledged
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace, notice
from tests.producer.relay.running import RelayRun, running

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
AWAY = SendInDoubt("no answer in time", "msg_timed_out")


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_row_is_published_as_it_was_written(place: OutboxPlace, broker: Broker) -> None:
    message_id = place.add("order-1", traceparent=TRACEPARENT)
    run = RelayRun(place.store, broker)
    assert run.step() == 1
    (record,) = broker.came
    assert record.topic == "hongyan.dispatch.sms.notice"
    assert record.key == b"order-1"
    assert record.value.decode() == place.row(message_id).payload
    assert record.headers == [
        ("hongyan-id", message_id.encode()),
        ("traceparent", TRACEPARENT.encode()),
    ]
    assert place.states() == {message_id: "SENT"}
    assert run.count("relay_published_total", lane="sms.notice") == 1


def test_a_publication_in_doubt_goes_out_again_with_the_same_id(
    place: OutboxPlace, broker: Broker
) -> None:
    message_id = place.add(retry=RetryTerms(interval_s=0.01, limit_s=0.01))
    run = RelayRun(place.store, broker)
    broker.failure = AWAY
    run.step()
    assert place.row(message_id).maybe_sent == 1
    broker.failure = None
    place.end_lease(message_id)
    run.step()
    assert broker.ids == [message_id, message_id]
    assert place.states() == {message_id: "SENT"}


def test_a_relay_killed_before_the_publication_leaves_the_row_to_another(
    place: OutboxPlace, broker: Broker
) -> None:
    message_id = place.add()
    assert place.claimed() == [message_id]  # and its process ends here
    place.end_lease(message_id)
    RelayRun(place.store, broker).step()
    assert broker.ids == [message_id]
    assert place.states() == {message_id: "SENT"}


def test_a_relay_killed_after_the_acknowledgement_and_before_the_mark_repeats_the_id(
    place: OutboxPlace, broker: Broker
) -> None:
    message_id = place.add()
    RelayRun(place.store, broker).relay.run_once()  # published, and its process ends here
    assert place.states() == {message_id: "SENDING"}
    place.end_lease(message_id)
    RelayRun(place.store, broker, name="relay-b").step()
    assert broker.ids == [message_id, message_id]
    assert place.states() == {message_id: "SENT"}


def test_a_mark_that_the_database_lost_repeats_the_id(
    sqlite_place: OutboxPlace, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third error point: the mark's commit fails after the acknowledgement."""
    message_id = sqlite_place.add()
    run = RelayRun(sqlite_place.store, broker)
    with monkeypatch.context() as broken:
        broken.setattr(type(sqlite_place.store), "_mark_sent", lambda *_: 1)
        run.step()
    assert sqlite_place.states() == {message_id: "SENDING"}
    sqlite_place.end_lease(message_id)
    run.step()
    assert broker.ids == [message_id, message_id]
    assert sqlite_place.states() == {message_id: "SENT"}


def test_a_relay_that_slept_past_its_lease_publishes_nothing_more(
    place: OutboxPlace, broker: Broker
) -> None:
    place.add()
    times = iter([0.0, 0.0, 0.0, 0.0, 25.0])
    run = RelayRun(place.store, broker, monotonic=lambda: next(times, 25.0))
    run.step()
    assert broker.came == []


def test_a_mark_after_the_lease_is_refused_and_counted(place: OutboxPlace, broker: Broker) -> None:
    """Relay a is paused between the acknowledgement and its mark; relay b has taken the row."""
    message_id = place.add()
    paused, other = RelayRun(place.store, broker), RelayRun(place.store, broker, name="relay-b")
    paused.relay.run_once()
    place.end_lease(message_id)
    other.relay.run_once()
    paused.mark()
    assert place.states() == {message_id: "SENDING"}
    assert paused.count("relay_fenced_total") == 1
    other.mark()
    assert place.states() == {message_id: "SENT"}
    assert other.count("relay_fenced_total") == 0


def test_a_mark_whose_answer_was_lost_is_no_mark_of_another_relay(
    sqlite_place: OutboxPlace, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = sqlite_place.add()
    mark, lost = sqlite_place.store.mark, [OutboxAway("the connection broke at COMMIT")]

    def cut(token: int, sent: Sequence[ClaimedRow], failed: Sequence[FailedRow] = ()) -> int:
        written = mark(token, sent, failed)
        if lost:
            raise lost.pop()
        return written

    monkeypatch.setattr(sqlite_place.store, "mark", cut)
    run = RelayRun(sqlite_place.store, broker)
    run.step()
    assert sqlite_place.states() == {message_id: "SENT"}
    assert run.count("relay_fenced_total") == 0
    assert run.count("relay_published_total", lane="sms.notice") == 1


def test_spent_attempts_park_the_row_with_its_alert(place: OutboxPlace, broker: Broker) -> None:
    message_id = place.add(retry=RetryTerms(attempts=2, interval_s=0.01, limit_s=0.01))
    run = RelayRun(place.store, broker)
    broker.failure = NotDelivered("no such topic; run `hongyan topics apply`", "unknown_topic")
    for _ in range(2):
        run.step()
        if place.row(message_id).next_at is not None:
            place.end_lease(message_id)
    assert place.states() == {message_id: "PARKED"}
    (alert,) = place.rows.untold_alerts()
    assert "no such topic" in alert.text
    assert run.count("relay_failed_total", kind="parked") == 1


def test_a_record_that_no_try_can_deliver_is_parked_at_once(
    place: OutboxPlace, broker: Broker
) -> None:
    message_id = place.add()
    broker.failure = NotDelivered("too large", "msg_size_too_large", repeatable=False)
    run = RelayRun(place.store, broker)
    run.step()
    assert place.states() == {message_id: "PARKED"}
    assert not run.outage.lasts


def test_a_row_that_makes_no_record_is_parked_alone(place: OutboxPlace, broker: Broker) -> None:
    first, strange, last = place.add(), place.add("order-1"), place.add()
    place.set(strange, "headers = '{}'")
    run = RelayRun(place.store, broker)
    run.step()
    assert broker.ids == [first, last]
    assert place.states() == {first: "SENT", strange: "PARKED", last: "SENT"}
    assert place.row(strange).maybe_sent == 0
    (alert,) = place.rows.untold_alerts()
    assert "makes no record" in alert.text
    assert not run.outage.lasts


def test_a_row_that_ends_each_process_is_parked_and_not_tried_for_ever(
    place: OutboxPlace, broker: Broker
) -> None:
    message_id = place.add(retry=RetryTerms(attempts=2))
    for _ in range(2):
        place.claimed()
        place.end_lease(message_id)
    RelayRun(place.store, broker).step()
    assert broker.came == []
    assert place.states() == {message_id: "PARKED"}
    assert "ended with the process" in place.row(message_id).last_error


def test_an_outage_of_kafka_costs_one_row_at_a_time_an_attempt(
    place: OutboxPlace, broker: Broker
) -> None:
    ids = [place.add() for _ in range(10)]
    run = RelayRun(place.store, broker)
    broker.failure = AWAY
    run.step()
    assert run.outage.lasts
    for one in ids:
        place.end_lease(one)
    run.step()
    assert Counter(place.row(one).attempt for one in ids) == {1: 9, 2: 1}
    assert 0 < run.outage.pause_s <= 10
    broker.failure = None
    for one in ids:
        place.end_lease(one)
    run.step()
    assert run.outage.pause_s == 0
    run.step()
    assert set(place.states().values()) == {"SENT"}


def test_a_full_buffer_gives_rows_back_without_an_attempt(
    place: OutboxPlace, broker: Broker
) -> None:
    message_id = place.add()
    broker.refusal = BufferFull("the buffer is full")
    run = RelayRun(place.store, broker)
    run.step()
    row = place.row(message_id)
    assert (row.state, row.attempt) == ("PENDING", 0)
    assert run.outage.lasts


def test_rows_of_one_key_arrive_in_order_across_failures(
    place: OutboxPlace, broker: Broker
) -> None:
    ids = [place.add("order-1", retry=RetryTerms(interval_s=0.01, limit_s=0.01)) for _ in range(4)]
    run = RelayRun(place.store, broker)
    broker.failure = AWAY
    run.step()
    broker.failure = None
    deadline = time.monotonic() + 20
    with running(run):
        while set(place.states().values()) != {"SENT"} and time.monotonic() < deadline:
            threading.Event().wait(0.02)
    assert broker.ids == [ids[0], *ids]


def test_commits_that_overtake_each_other_lose_nothing(place: OutboxPlace, broker: Broker) -> None:
    """Transactions with random delays, a fifth of them rolled back, while two relays look."""
    random, kept, guard = Random(17), list[str](), threading.Lock()
    plans = [[(random.random() * 0.02, random.random() < 0.2) for _ in range(15)] for _ in range(6)]

    # SQLite lets writers in by chance: on a busy machine one waits for more than 5 s.
    patient = outbox_engine(place.url, pool_size=6, waits=OutboxWaits(busy_s=30.0))

    def write(plan: list[tuple[float, bool]]) -> None:
        for delay_s, undone in plan:
            with patient.connect() as connection:
                transaction = connection.begin()
                message_id = place.outbox.add(connection, notice()).id
                threading.Event().wait(delay_s)
                if undone:
                    transaction.rollback()
                    continue
                transaction.commit()
            with guard:
                kept.append(message_id)

    runs = [RelayRun(place.store, broker, name=f"relay-{n}") for n in "ab"]
    with running(*runs):
        writers = [threading.Thread(target=write, args=(plan,)) for plan in plans]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(30)
        deadline = time.monotonic() + 20
        while set(place.states().values()) - {"SENT"} and time.monotonic() < deadline:
            threading.Event().wait(0.02)
    patient.dispose()
    assert Counter(broker.ids) == Counter(kept)
    assert place.states() == dict.fromkeys(kept, "SENT")


def test_a_helping_thread_shares_a_backlog_and_repeats_nothing(
    place: OutboxPlace, broker: Broker
) -> None:
    ids = [place.add() for _ in range(60)]
    run = RelayRun(place.store, broker, batch=5)
    helper = threading.Thread(target=run.relay.help, daemon=True)
    helper.start()
    deadline = time.monotonic() + 40
    with running(run):
        while set(place.states().values()) != {"SENT"} and time.monotonic() < deadline:
            threading.Event().wait(0.02)
    helper.join(10)
    assert not helper.is_alive()
    assert Counter(broker.ids) == dict.fromkeys(ids, 1)


def test_an_outage_of_kafka_ends_the_help(sqlite_place: OutboxPlace, broker: Broker) -> None:
    for _ in range(6):
        sqlite_place.add()
    run = RelayRun(sqlite_place.store, broker, batch=5)
    run.relay.call_helper(run.step())
    assert run.relay.busy.is_set()
    broker.failure = AWAY
    run.relay.call_helper(run.step())
    assert not run.relay.busy.is_set()


def test_the_back_off_doubles_up_to_its_limit_with_jitter() -> None:
    row = ClaimedRow(1, "m", "t", "k", "[]", 1, 20, 1_000, 300_000, "{}")
    whole = [backoff_ms(row._replace(attempt=n), 0.0) for n in range(1, 12)]
    assert whole[:4] == [1_000, 2_000, 4_000, 8_000]
    assert whole[-1] == 300_000
    assert backoff_ms(row._replace(attempt=1_000), 0.999) >= 150_000


def test_an_acknowledgement_is_of_the_record_and_not_of_the_call(
    sqlite_place: OutboxPlace, broker: Broker
) -> None:
    message_id = sqlite_place.add()
    broker.silent = True
    times = iter([0.0] * 5)
    run = RelayRun(sqlite_place.store, broker, monotonic=lambda: next(times, 24.0))
    run.step()
    row = sqlite_place.row(message_id)
    assert (row.state, row.maybe_sent) == ("PENDING", 1)
    assert "did not answer" in row.last_error
    assert Acknowledged("t", 0, 1, 0).offset == 1
