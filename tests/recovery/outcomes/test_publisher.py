"""The publisher on a real outbox: nothing is deleted before its acknowledgement, nothing hides others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from backends.settings import DatabaseSettings, Settings
from idempotency.outcomes.lanes import TOPIC
from idempotency.outcomes.outbox import OutcomeOutbox
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from recovery.outcomes.events import ReadyEvent, ready_events
from recovery.outcomes.publisher import (
    LEASE_S,
    LOOK_S,
    HeldDuties,
    OutcomePublisher,
    PublisherMetrics,
    PublisherTerms,
)
from tests.idempotency.making import World, claimed, delivery, settle, worker

LANE = "sms.notice"
HASH_KEY = b"k" * 32
LONGEST_S = 15.0


@pytest.fixture
def url(sqlite_database: str) -> str:
    """SQLite's; the last test runs the statements on PostgreSQL."""
    return sqlite_database


class Target:
    """Acknowledges what it gets, unless a batch is refused."""

    def __init__(self) -> None:
        self.heard: list[ReadyEvent] = []
        self.refused: Callable[[int], bool] = lambda _: False
        self.on_publish: Callable[[], object] = lambda: None

    def publish(self, events: Sequence[ReadyEvent]) -> set[int]:
        self.on_publish()
        self.heard += events
        return {one.batch for one in events if not self.refused(one.batch)}

    def ids(self) -> list[str]:
        return [one.event.event_id for one in self.heard]


class Bench:
    """A publisher with a clock of its own."""

    def __init__(self, world: World, ledger: SqlLedger, name: str) -> None:
        self.target = Target()
        self.seconds = 0.0
        self.registry = CollectorRegistry()
        self.outbox: OutcomeOutbox = ledger.outbox()
        duties = ledger.duties()
        self.publisher = OutcomePublisher(
            PublisherTerms(TOPIC, LONGEST_S, 7),
            self.outbox,
            self.target,
            ready=partial(ready_events, hash_key=HASH_KEY, open_receiver=self.outbox.receiver_of),
            duties=HeldDuties(
                lambda duty, ms: duties.hold(duty, name, ms), lambda duty: duties.drop(duty, name)
            ),
            announced=lambda: True,
            metrics=PublisherMetrics(self.registry),
            monotonic=lambda: self.seconds,
        )
        self._world = world

    def look(self, seconds: float = 0.0) -> float:
        """Looks once, after so much time."""
        self.seconds += seconds
        self._world.advance(int(seconds * 1_000))
        return self.publisher.run_once()

    def count(self, name: str) -> float:
        found = self.registry.get_sample_value(f"hongyan_outcomes_{name}_total", {"target": TOPIC})
        return found or 0.0


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    opened = world.open()
    opened.announced.follow({LANE: TOPIC})
    opened.register(worker())
    return opened


@pytest.fixture
def bench(world: World, ledger: SqlLedger) -> Bench:
    return Bench(world, ledger, "r1")


def ended(ledger: SqlLedger, count: int = 1, **fields: object) -> list[str]:
    """Deliveries that are SENT, each in a batch of its own; their keys."""
    items = claimed(ledger, *(delivery(**fields) for _ in range(count)))
    for item in items:
        assert settle(ledger, item, Event.ACCEPTED, provider_id="p-1")
    return [item.key for item in items]


def left(world: World) -> int:
    ((count,),) = world.rows("SELECT count(*) FROM outcome_batches")
    return int(count)


def test_what_is_acknowledged_is_deleted(world: World, ledger: SqlLedger, bench: Bench) -> None:
    keys = ended(ledger, 3)
    bench.target.on_publish = lambda: pytest.fail("deleted too early") if left(world) != 3 else None
    assert bench.look() == 0.0
    assert [one.event.delivery_key for one in bench.target.heard] == keys
    assert left(world) == 0
    assert (bench.look(), bench.count("published")) == (LOOK_S, 3)


def test_what_is_not_acknowledged_stays_and_is_repeated_under_the_same_id(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    ended(ledger)
    bench.target.refused = lambda _: True
    pauses = [bench.look(), bench.look(LONGEST_S), bench.look(LONGEST_S)]
    assert pauses == [1.0, 2.0, 4.0]
    assert left(world) == 1
    bench.target.refused = lambda _: False
    bench.look(LONGEST_S)
    assert left(world) == 0
    assert len(bench.target.ids()) == 4
    assert len(set(bench.target.ids())) == 1
    assert (bench.count("failures"), bench.count("published")) == (3, 1)


def test_a_crash_between_acknowledgement_and_deletion_repeats_the_same_ids(
    world: World, ledger: SqlLedger, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(ledger, 2)
    with monkeypatch.context() as patch:

        def die(_: object) -> None:
            raise SystemExit

        patch.setattr(bench.outbox, "remove", die)
        with pytest.raises(SystemExit):
            bench.look()
    first = bench.target.ids()
    bench.look()
    assert bench.target.ids() == first * 2
    assert left(world) == 0


def test_a_batch_that_is_never_taken_hides_no_other(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    ended(ledger)
    ((poison,),) = world.rows("SELECT id FROM outcome_batches")
    bench.target.refused = lambda batch: batch == poison
    for _ in range(5):
        (key,) = ended(ledger)
        bench.look(1.0)
        assert key in [one.event.delivery_key for one in bench.target.heard]
    assert left(world) == 1


def test_a_batch_waits_as_long_as_its_own_failures_ask_for(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    ended(ledger)
    ((poison,),) = world.rows("SELECT id FROM outcome_batches")
    bench.target.refused = lambda batch: batch == poison
    for _ in range(4):
        bench.look(LONGEST_S)
    (key,) = ended(ledger)
    bench.target.refused = lambda _: True
    bench.look(LONGEST_S)
    bench.target.refused = lambda batch: batch == poison
    assert bench.look(1.0) == 0.0
    assert [one.event.delivery_key for one in bench.target.heard[-1:]] == [key]
    assert left(world) == 1


def test_a_refused_batch_is_no_reason_to_pause_while_others_are_taken(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    ended(ledger)
    ((poison,),) = world.rows("SELECT id FROM outcome_batches")
    bench.target.refused = lambda batch: batch == poison
    for _ in range(5):
        ended(ledger)
        assert bench.look(LONGEST_S) == 0.0
    assert bench.look(LONGEST_S) == 1.0


def test_one_process_at_a_time_publishes_and_another_takes_over(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    other = Bench(world, ledger, "r2")
    bench.look()
    ended(ledger)
    other.look()
    assert other.target.heard == []
    bench.look()
    assert len(bench.target.heard) == 1
    ended(ledger)
    other.look(LEASE_S + 1)  # the first has not renewed
    assert len(other.target.heard) == 1


def test_a_publisher_that_stops_leaves_the_duty(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    bench.look()
    bench.publisher.stop()
    bench.publisher.run()
    ended(ledger)
    other = Bench(world, ledger, "r2")
    other.look()
    assert len(other.target.heard) == 1


def test_events_that_nobody_took_for_days_are_given_up_and_counted(
    world: World, ledger: SqlLedger, bench: Bench
) -> None:
    ended(ledger, 2)
    bench.target.refused = lambda _: True
    bench.look()
    with capture_logs() as logs:
        bench.look(7 * 86_400 + 1)
    assert left(world) == 0
    assert bench.count("given_up") == 2
    assert [line["events"] for line in logs if line["event"] == "outcomes_given_up"] == [2]


def test_many_events_are_read_in_bounded_looks(
    world: World, ledger: SqlLedger, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.outcomes.outbox.MOST_ENDS", 4)
    ended(ledger, 10)
    bench.look()
    assert len(bench.target.heard) == 4
    bench.look()
    bench.look()
    assert left(world) == 0


def test_the_backlog_is_counted_with_its_age(world: World, ledger: SqlLedger, bench: Bench) -> None:
    assert bench.outbox.waiting() == []
    ended(ledger, 3)
    world.advance(5_000)
    assert [tuple(one) for one in bench.outbox.waiting()] == [(TOPIC, 3, 5_000)]
    assert [tuple(one) for one in ledger.fleet_status().outcomes_waiting()] == [(TOPIC, 3, 5_000)]


def test_an_event_shows_the_receiver_as_hash_and_mask_alone(
    ledger: SqlLedger, bench: Bench
) -> None:
    (key,) = ended(ledger, biz_id="order-1", ordering_key="shop")
    bench.look()
    (one,) = bench.target.heard
    assert one.key == "shop"
    event = one.event
    assert (event.delivery_key, event.biz_id, event.lane) == (key, "order-1", LANE)
    assert (event.state, event.provider_id, event.attempt) == ("SENT", "p-1", 1)
    assert event.receiver_mask == "+86138***0001"
    assert event.receiver_hash is not None
    assert len(event.receiver_hash) == 64
    assert event.ended_at >= event.created_at > 0


@pytest.mark.parametrize("known", [True, False])
def test_a_sealed_receiver_is_opened_or_left_out(url: str, known: bool) -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    world = World(url, payload_key=key)
    ledger = world.open()
    ledger.announced.follow({LANE: TOPIC})
    ledger.register(worker())
    ended(ledger)
    ((ends,),) = world.rows("SELECT ends FROM outcome_batches")
    assert b"+8613800000001".hex() not in ends.lower()
    without = Settings(database=DatabaseSettings(url=url))
    reader = ledger if known else open_ledger(without, lambda: world.now)
    bench = Bench(world, reader, "r1")
    bench.look()
    (event,) = [one.event for one in bench.target.heard]
    assert (event.receiver_hash is not None) is known
    assert event.receiver_mask == ("+86138***0001" if known else "***")
    reader.close()
    world.close()


def test_on_postgresql_batches_are_read_postponed_removed_and_forgotten(
    ledger_database: str,
) -> None:
    world = World(ledger_database)
    ledger = world.open()
    ledger.announced.follow({LANE: TOPIC})
    ledger.register(worker())
    bench = Bench(world, ledger, "r1")
    ended(ledger, 3)
    world.advance(5_000)
    assert [tuple(one) for one in bench.outbox.waiting()] == [(TOPIC, 3, 5_000)]
    first, *others = (batch.id for batch in bench.outbox.due(TOPIC, 10))
    bench.target.refused = lambda batch: batch == first
    assert bench.look() == 0.0
    assert (left(world), bench.outbox.due(TOPIC, 10)) == (1, [])
    bench.look(7 * 86_400 + 1)
    assert (left(world), bench.count("given_up"), len(others)) == (0, 1, 2)
    world.close()
