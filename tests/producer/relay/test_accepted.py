"""A relay announces what Kafka acknowledged, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hongyan_client.errors import SendInDoubt
from hongyan_client.outbox.errors import OutboxAway
from hongyan_client.outbox.publication import EndedBatch
from hongyan_client.outbox.store import ClaimedRow, FailedRow
from producer.relay.accepted import RelayAnnouncement
from sending.accepted_trace import AcceptedTrace
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace
from tests.producer.relay.running import RelayRun
from tracing.events import Stage, TraceEvent

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept:
    """A recorder that keeps the events."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events

    def close(self) -> None:
        """Keeps them."""


@pytest.fixture
def kept() -> Kept:
    return Kept()


def announcing(place: OutboxPlace, broker: Broker, kept: Kept) -> RelayRun:
    run = RelayRun(place.store, broker)
    trace = AcceptedTrace(kept, "relay")  # type: ignore[arg-type]  # as much as is asked
    run.marker._announce = RelayAnnouncement(trace, "hongyan").of_batch
    return run


def test_an_acknowledged_row_is_announced_with_its_place_and_context(
    sqlite_place: OutboxPlace, kept: Kept
) -> None:
    message_id = sqlite_place.add("order-1", traceparent=CONTEXT)
    announcing(sqlite_place, Broker(), kept).step()
    (event,) = kept.events
    assert (event.stage, event.message_id, event.lane) == (Stage.ACCEPTED, message_id, "sms.notice")
    assert event.origin == "hongyan.dispatch.sms.notice/0/1"
    assert event.traceparent == CONTEXT
    assert event.worker == "relay"
    assert event.receiver is not None
    assert "13800000001" not in event.receiver


def test_a_row_that_failed_is_not_announced(sqlite_place: OutboxPlace, kept: Kept) -> None:
    sqlite_place.add()
    broker = Broker()
    broker.failure = SendInDoubt("no answer in time", "msg_timed_out")
    announcing(sqlite_place, broker, kept).step()
    assert kept.events == []


def test_a_context_that_is_none_is_left_out(sqlite_place: OutboxPlace, kept: Kept) -> None:
    message_id = sqlite_place.add()
    headers = f'[["hongyan-id", "{message_id}"], ["traceparent", "00-1-2-01"]]'
    sqlite_place.set(message_id, f"headers = '{headers}'")
    announcing(sqlite_place, Broker(), kept).step()
    assert [event.traceparent for event in kept.events] == [None]


def test_rows_are_announced_once_their_marks_are_written(
    sqlite_place: OutboxPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def announce(ended: EndedBatch) -> None:
        told.append(len(ended.sent))

    sqlite_place.add()
    run = RelayRun(sqlite_place.store, Broker())
    run.marker._announce = announce
    mark, failures = sqlite_place.store.mark, [OutboxAway("away")]

    def cut(token: int, sent: Sequence[ClaimedRow], failed: Sequence[FailedRow] = ()) -> int:
        if failures:
            assert told == []
            raise failures.pop()
        return mark(token, sent, failed)

    monkeypatch.setattr(sqlite_place.store, "mark", cut)
    run.step()
    assert told == [1]
    assert set(sqlite_place.states().values()) == {"SENT"}
