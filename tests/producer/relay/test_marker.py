"""The marker: a late record holds up its own row alone, and its end holds up nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from backends.settings import RelaySettings, Settings, TraceSettings
from hongyan_client.outbox.errors import OutboxForbidden
from hongyan_client.outbox.store import OutboxStore
from producer.relay import marker as module
from producer.relay import process
from producer.relay.marker import MOST_BATCHES
from sending.runtime.exit_codes import EXIT_FAILED
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace
from tests.producer.relay.running import RelayRun

WITHIN_S = 20.0


class ManualBroker(Broker):
    """Keeps the ends of records without an answer, for the test to call."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: set[str] = set()
        self.later: list[Callable[[], None]] = []

    def publish_batch(self, records, on_end, deadline_s):  # type: ignore[no-untyped-def]
        for number, record in enumerate(records):
            self.came.append(record)
            place = self._place_of(record)
            if dict(record.headers)["hongyan-id"].decode() in self.unanswered:
                self.later.append(partial(on_end, number, place))
            else:
                on_end(number, place)
        return len(records)

    def close(self, timeout_s: float = 0.0) -> int:
        return len(self.later)


class Clock:
    """Monotonic time that stands until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def broker() -> ManualBroker:
    return ManualBroker()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_record_without_an_answer_holds_up_no_other_batch(
    sqlite_place: OutboxPlace, broker: ManualBroker, clock: Clock
) -> None:
    late = sqlite_place.add()
    broker.unanswered.add(late)
    run = RelayRun(sqlite_place.store, broker, monotonic=clock)
    run.relay.run_once()
    run.marker.look()
    for _ in range(2 * MOST_BATCHES):
        message_id = sqlite_place.add()
        run.relay.run_once()
        run.marker.look()
        assert sqlite_place.states()[message_id] == "SENT"
    assert sqlite_place.states()[late] == "SENDING"
    broker.later.pop()()
    run.marker.look()
    assert sqlite_place.states()[late] == "SENT"
    assert run.marker.empty


def test_the_rows_of_a_late_batch_are_marked_as_they_are_acknowledged(
    sqlite_place: OutboxPlace, broker: ManualBroker, clock: Clock
) -> None:
    late, other = sqlite_place.add(), sqlite_place.add()
    broker.unanswered.add(late)
    run = RelayRun(sqlite_place.store, broker, monotonic=clock)
    run.relay.run_once()
    run.marker.look()
    assert sqlite_place.states() == {late: "SENDING", other: "SENDING"}
    clock.now = module.PART_S
    run.marker.look()
    assert sqlite_place.states() == {late: "SENDING", other: "SENT"}
    clock.now = 24.0
    run.marker.look()
    assert sqlite_place.states() == {late: "PENDING", other: "SENT"}
    assert sqlite_place.row(late).maybe_sent == 1
    assert not run.outage.lasts  # the batch had an acknowledgement


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_CHARACTERS"])
def test_open_rows_hold_up_claims_once_they_are_too_many(
    sqlite_place: OutboxPlace,
    broker: ManualBroker,
    clock: Clock,
    limit: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, limit, 1)
    run = RelayRun(sqlite_place.store, broker, monotonic=clock)
    for _ in range(1 + MOST_BATCHES):
        broker.unanswered.add(sqlite_place.add())
        run.relay.run_once()
        run.marker.look()
    broker.unanswered.add(sqlite_place.add())
    claiming = threading.Thread(target=run.relay.run_once, daemon=True)
    claiming.start()
    claiming.join(0.3)
    assert claiming.is_alive()
    broker.later.pop(0)()
    run.marker.look()
    run.marker.look()
    claiming.join(WITHIN_S)
    assert not claiming.is_alive()


def test_nobody_waits_for_a_marker_that_died(
    sqlite_place: OutboxPlace, broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_given: object) -> int:
        raise OutboxForbidden("the database's user lacks a right")

    monkeypatch.setattr(OutboxStore, "mark", forbidden)
    run = RelayRun(sqlite_place.store, broker)
    for _ in range(MOST_BATCHES):
        sqlite_place.add()
        run.relay.run_once()
    with pytest.raises(OutboxForbidden):
        run.marker.run()
    for _ in range(MOST_BATCHES):  # more than the queue has room for
        sqlite_place.add()
        run.relay.run_once()
    assert not run.marker.close(WITHIN_S)
    run.relay.run()
    run.relay.help()


def test_a_relay_whose_marker_dies_ends_with_its_exit_code(
    sqlite_place: OutboxPlace, broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_given: object) -> int:
        raise OutboxForbidden("the database's user lacks a right")

    monkeypatch.setattr(OutboxStore, "mark", forbidden)
    monkeypatch.setattr(process, "_publisher", lambda _settings: broker)
    for _ in range(60):
        sqlite_place.add()
    relay = RelaySettings(outbox_url=sqlite_place.url, batch=1, health_address="127.0.0.1:0")
    settings = Settings(relay=relay, trace=TraceSettings(kafka=False, database=False))
    codes: list[int] = []
    ending = threading.Thread(
        target=lambda: codes.append(process.run_relay(settings, threading.Event())), daemon=True
    )
    ending.start()
    ending.join(WITHIN_S)
    assert codes == [EXIT_FAILED]


def test_a_close_waits_no_longer_than_it_was_asked(
    sqlite_place: OutboxPlace, broker: ManualBroker
) -> None:
    broker.unanswered.add(sqlite_place.add())
    run = RelayRun(sqlite_place.store, broker)
    run.relay.run_once()
    threading.Thread(target=run.marker.run, daemon=True).start()
    assert not run.marker.close(0.05)
    broker.later.pop()()
    assert run.marker.close(WITHIN_S)
