"""`hongyan trace --wait`: until every delivery that is known of has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from backends.settings import load
from hongyan import trace_wait
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.envelope import encode
from message.states import Event
from policy.schema import Guarantee, LanePolicy, Policy, TraceLevel
from sending.accepted_trace import AcceptedTrace
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, settle, worker
from tests.idempotency.making import delivery as delivery_of
from tracing import open_recorder
from tracing.timeline import DeliveryStory, LedgerRow, Moment, Story


def story(*states: str, moments: int = 2) -> list[Story]:
    return [
        Story(
            message_id="m1",
            biz_id=None,
            lane="sms.notice",
            deliveries=[delivery(state, moments) for state in states],
        )
    ]


def without_row(*what: str, state: str = "", key: str = "k", at: int = 1) -> DeliveryStory:
    found = [Moment(at=at, what=one, state=state) for one in what]
    return DeliveryStory(delivery_key=key, receiver="r", row=None, moments=found)


def of(*deliveries: DeliveryStory) -> list[Story]:
    return [Story(message_id="m1", biz_id=None, lane="sms.notice", deliveries=list(deliveries))]


def without_ledger(level: TraceLevel = TraceLevel.ALL) -> Policy:
    lane = LanePolicy(guarantee=Guarantee.BEST_EFFORT, trace=level)
    return Policy(lanes={"sms.notice": lane})


def delivery(state: str, moments: int) -> DeliveryStory:
    row = LedgerRow(
        delivery_key="k",
        message_id="m1",
        biz_id=None,
        lane="sms.notice",
        state=state,
        reason=None,
        attempt=1,
        owner="w",
        provider_id=None,
        created_at=1,
        updated_at=1,
        next_at=None,
        expires_at=9,
        policy_version="",
        resend_of=None,
    )
    happened = [Moment(at=1, what="claimed") for _ in range(moments)]
    return DeliveryStory(delivery_key="k", receiver="r", row=row, moments=happened)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("hongyan.trace_wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr("hongyan.trace_wait.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    return now


def looks(*answers: list[Story]) -> Iterator[list[Story]]:
    yield from answers
    while True:
        yield answers[-1]


def test_it_waits_for_the_last_open_delivery(clock: list[float]) -> None:
    seen = looks([], story("IN_FLIGHT"), story("SENT", "UNKNOWN"), story("SENT", "REJECTED"))
    assert trace_wait.await_end(lambda: next(seen), 30, Policy()) == story("SENT", "REJECTED")


@pytest.mark.parametrize("state", ["IN_FLIGHT", "RETRY", "UNKNOWN"])
def test_it_ends_at_its_time(clock: list[float], state: str) -> None:
    assert trace_wait.await_end(lambda: story(state), 5, Policy()) == story(state)
    assert 105 <= clock[0] < 106


def test_it_gives_the_trace_a_moment_after_the_end(clock: list[float]) -> None:
    seen = looks(story("SENT", moments=1), story("SENT", moments=3))
    assert trace_wait.await_end(lambda: next(seen), 30, Policy()) == story("SENT", moments=3)
    assert trace_wait.await_end(lambda: story("SENT", moments=1), 30, Policy()) == story(
        "SENT", moments=1
    )
    assert clock[0] < 104, "an archived trace is not waited for"


def test_what_no_worker_has_claimed_yet_has_not_ended(clock: list[float]) -> None:
    accepted = without_row("created", "accepted")
    assert not trace_wait.ended(of(accepted), Policy())
    assert not trace_wait.ended(of(delivery("SENT", 2), accepted), Policy())
    assert not trace_wait.ended(of(without_row("created", "claimed", state="IN_FLIGHT")), Policy())
    seen = looks(of(accepted), of(delivery("IN_FLIGHT", 2)), of(delivery("SENT", 2)))
    assert trace_wait.await_end(lambda: next(seen), 30, Policy()) == of(delivery("SENT", 2))
    assert trace_wait.await_end(lambda: of(accepted), 5, Policy()) == of(accepted)


def test_a_delivery_without_a_row_has_ended_with_its_last_event() -> None:
    for state in ("SENT", "DROPPED", "PARKED"):
        assert trace_wait.ended(of(without_row("settled", state=state)), Policy())
    reopened = without_row("settled", state="PARKED")
    reopened.moments.append(Moment(at=2, what="resolved", state="RETRY"))
    assert not trace_wait.ended(of(reopened), Policy())
    rebuilt = without_row("appended")
    rebuilt.state = "DELIVERED"
    assert trace_wait.ended(of(rebuilt), Policy())


def test_a_dead_letter_ends_every_delivery_of_its_message_until_it_is_replayed() -> None:
    letter = without_row("dead_letter", key="", at=5)
    assert trace_wait.ended(of(letter), Policy())
    assert trace_wait.ended(of(without_row("accepted", at=1), letter), Policy())
    assert not trace_wait.ended(of(without_row("accepted", at=9), letter), Policy())


def test_a_lane_without_ledger_ends_with_an_event_of_a_worker_where_it_traces_all() -> None:
    accepted, sent = without_row("created", "accepted"), without_row("accepted", "received")
    assert not trace_wait.ended(of(accepted), without_ledger())
    assert trace_wait.ended(of(sent), without_ledger())
    for level in (TraceLevel.TROUBLE, TraceLevel.NONE):
        assert trace_wait.ended(of(accepted), without_ledger(level)), "no event may come"


@pytest.fixture
def traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    """A ledger; its trace has that Kafka acknowledged the message m1."""
    monkeypatch.setenv("HONGYAN_TRACE__KAFKA", "false")
    make_ledger()
    settings = load()
    with closing(open_recorder(settings, "send")) as recorder, closing(open_ledger(settings)) as it:
        it.register(worker("w1"))
        place = SimpleNamespace(topic="hongyan.dispatch.sms.notice", partition=1, offset=7)
        place.timestamp_ms = it.now_ms()
        AcceptedTrace(recorder, "send").acknowledged(delivery_of(id="m1").notification, place)
        recorder.close()
        yield it


def test_a_message_that_waits_in_kafka_is_waited_for(hongyan: Run, traced: SqlLedger) -> None:
    said = hongyan("trace", "m1", "--wait", "0.5")
    assert (said.code, "not ended within 0.5 s" in said.err) == (1, True)
    (one,) = claimed(traced, delivery_of(id="m1"))
    assert hongyan("trace", "m1", "--wait", "0.5").code == 1
    assert settle(traced, one, Event.ACCEPTED, provider_id="p")
    assert hongyan("trace", "m1", "--wait", "0.5").code == 0


def test_a_place_is_waited_for_by_the_id_of_its_record(
    hongyan: Run, traced: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = delivery_of(id="m1")
    record = SimpleNamespace(value=lambda: encode(item.notification))
    monkeypatch.setattr("backends.kafka.topic_reader.record_at", lambda *_: record)
    (one,) = claimed(traced, item)
    assert settle(traced, one, Event.ACCEPTED, provider_id="p")
    began = time.monotonic()
    said = hongyan("trace", "hongyan.dispatch.sms.notice/1/7", "--wait", "30", "--json")
    assert (said.code, said.json[0]["message_id"]) == (0, "m1")
    assert time.monotonic() - began < 15


def test_a_wait_that_was_too_short_is_a_problem(hongyan: Run) -> None:
    make_ledger()
    ended = hongyan("trace", "order-1", "--wait", "0.1")
    assert ended.code == 1
    assert "nothing is known of 'order-1'" in ended.err
