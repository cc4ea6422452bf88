"""The reader of outcome events: nothing is passed over that the handler has not taken."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, Producer

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client import ClientError, OutcomeEvent, OutcomeReader, State, WrongProperties
from hongyan_client import outcome_reader as module
from hongyan_client.outcome_reader import PlacedOutcome
from tests.harness.waiting import await_
from tests.hongyan_client.looking import NOWHERE, PATIENCE_S, make_topic, paused


def event(number: int) -> OutcomeEvent:
    return OutcomeEvent(
        event_id=f"e-{number}",
        id=f"n-{number}",
        biz_id=None,
        channel="sms",
        kind="notice",
        lane="sms.notice",
        receiver_hash=None,
        receiver_mask="+86138***0001",
        state=State.SENT,
        reason=None,
        provider_code=None,
        provider_id="p",
        account="a",
        attempt=1,
        delivery_key="0" * 32,
        created_at=1,
        ended_at=2,
        resend_of=None,
    )


class Ground:
    """The topic of one test, and readers of it."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.prefix, self.topic = bootstrap, prefix, f"{prefix}.outcomes"
        make_topic(bootstrap, self.topic, 2)

    def announce(self, *numbers: int) -> None:
        for number in numbers:
            self.write(msgspec.json.encode(event(number)), str(number))

    def write(self, value: bytes, key: str = "k", partition: int = -1) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.topic, value, key, partition)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, count: int, handle: Callable[[str], object] = str, **changes: Any) -> list[str]:
        """Ids of the first `count` events, each handed to `handle`; then the reader ends in order."""
        found: list[str] = []
        stop = threading.Event()

        def taken(events: Sequence[PlacedOutcome]) -> None:
            for one in events:
                handle(one.event.event_id)
            found.extend(one.event.event_id for one in events)
            if len(found) >= count:
                stop.set()

        given = {"group_id": f"{self.prefix}-orders", "topic_prefix": self.prefix, **changes}
        with OutcomeReader(self.bootstrap, **given) as reader:
            reader.run(taken, stop)
            self.figures = reader.figures
        return found


@pytest.fixture
def ground(kafka_bootstrap: str, topic_prefix: str) -> Ground:
    return Ground(kafka_bootstrap, topic_prefix)


def test_a_reader_goes_on_where_the_last_one_was(ground: Ground) -> None:
    ground.announce(1, 2, 3)
    assert sorted(ground.read(3)) == ["e-1", "e-2", "e-3"]
    ground.announce(4)
    assert ground.read(1) == ["e-4"]
    assert ground.figures().handled == 1


def test_events_come_again_until_the_handler_returns(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT_S", 0.05)
    ground.announce(1)
    calls: list[str] = []

    def handle(event_id: str) -> None:
        calls.append(event_id)
        if len(calls) < 3:
            raise RuntimeError("the handler's database is away")

    assert ground.read(1, handle) == ["e-1"]
    assert calls == ["e-1"] * 3
    assert ground.figures().failures == 2


def test_a_handler_that_keeps_the_place_decides_the_start(ground: Ground) -> None:
    ground.announce(*range(8))
    everything = ground.read(8, positions=dict)
    assert sorted(everything) == [f"e-{n}" for n in range(8)]
    later = ground.read(6, positions=lambda: {0: 1, 1: 1})
    assert len(later) == 6


def test_a_place_that_cannot_be_read_is_asked_for_again_and_nothing_is_read_before(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT_S", 0.05)
    for number in range(8):
        ground.write(msgspec.json.encode(event(number)), partition=number % 2)
    outages = 2

    def positions() -> dict[int, int]:
        nonlocal outages
        if outages:
            outages -= 1
            raise RuntimeError("the handler's database is away")
        return {0: 3, 1: 3}

    assert sorted(ground.read(2, positions=positions)) == ["e-6", "e-7"]
    assert not outages


def test_a_reader_ends_while_no_broker_answers_its_commit(
    monkeypatch: pytest.MonkeyPatch, library_log: io.StringIO
) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 0.5)
    held, goes_on, stop = threading.Event(), threading.Event(), threading.Event()

    def handle(_events: Sequence[PlacedOutcome]) -> None:
        held.set()
        goes_on.wait(PATIENCE_S)

    with EmbeddedKafka() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("hongyan.outcomes", msgspec.json.encode(event(1)))
        assert producer.flush(PATIENCE_S) == 0
        reader = OutcomeReader(cluster.bootstrap, group_id="orders")
        running = threading.Thread(target=reader.run, args=(handle, stop))
        running.start()
        assert held.wait(PATIENCE_S)
        with paused(cluster):
            stop.set()
            goes_on.set()
            running.join(5)
            assert not running.is_alive()
            reader.close()
    assert "did not let the reader go" in library_log.getvalue()


class Shop:
    """A handler's database: events and places in one transaction, which may fail for one reader."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.places: dict[int, int] = {}
        self.failed: list[str] = []
        self.failing = ""
        self._lock = threading.Lock()

    def handler(self, name: str) -> Callable[[Sequence[PlacedOutcome]], None]:
        def handle(events: Sequence[PlacedOutcome]) -> None:
            with self._lock:
                if self.failing == name:
                    self.failed += [one.event.event_id for one in events]
                    raise RuntimeError("a deadlock in the handler's database")
                self.applied += [one.event.event_id for one in events]
                self.places |= {one.place.partition: one.place.offset + 1 for one in events}

        return handle


@pytest.mark.parametrize("keeps_place", [True, False])
def test_events_of_partitions_that_moved_while_the_handler_failed_are_left_to_their_new_owner(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, keeps_place: bool
) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(module, "_LONGEST_WAIT_S", 0.2)
    for number in range(8):
        ground.write(msgspec.json.encode(event(number)), partition=number % 2)
    shop, stop = Shop(), threading.Event()
    shop.failing = "first"

    def read(name: str) -> None:
        with OutcomeReader(
            ground.bootstrap,
            group_id=f"{ground.prefix}-shop",
            topic_prefix=ground.prefix,
            positions=(lambda: dict(shop.places)) if keeps_place else None,
        ) as reader:
            reader.run(shop.handler(name), stop)

    readers = [threading.Thread(target=read, args=(name,)) for name in ("first", "second")]
    try:
        readers[0].start()
        await_(lambda: shop.failed, what="the first reader holds events")
        readers[1].start()
        await_(lambda: shop.applied, what="the second reader has a partition")
        shop.failing = ""
        await_(lambda: len(set(shop.applied)) == 8, what="every event was handled")
        for number in (8, 9):
            ground.write(msgspec.json.encode(event(number)), partition=number % 2)
        await_(lambda: {"e-8", "e-9"} <= set(shop.applied), what="both readers go on")
    finally:
        stop.set()
        for reader in readers:
            reader.join(PATIENCE_S)
    assert sorted(shop.applied) == sorted(f"e-{number}" for number in range(10))
    assert shop.places == {0: 5, 1: 5}


def test_a_record_that_is_no_event_is_passed_over_and_counted(
    ground: Ground, library_log: io.StringIO
) -> None:
    ground.write(b"{broken")
    ground.write(msgspec.json.encode(msgspec.structs.replace(event(1), v=9)))
    ground.announce(2)
    assert ground.read(1) == ["e-2"]
    assert ground.figures().unreadable == 2
    assert "version 9; this reader knows 1" in library_log.getvalue()


def test_a_fatal_error_ends_the_reader() -> None:
    told = SimpleNamespace(
        poll=lambda _timeout: None,
        consume=lambda *_: [SimpleNamespace(error=lambda: KafkaError(KafkaError._FATAL, "fenced"))],
    )
    reader = OutcomeReader(NOWHERE, group_id="x")
    reader._consumer, real = told, reader._consumer  # type: ignore[assignment]
    try:
        with pytest.raises(ClientError, match="start it anew"):
            reader.run(lambda _events: None, threading.Event())
    finally:
        reader._consumer = real
        reader.close()


def test_a_reader_names_its_system() -> None:
    with pytest.raises(WrongProperties, match="group_id is empty"):
        OutcomeReader(NOWHERE, group_id="")
    with pytest.raises(WrongProperties, match=r"enable\.auto\.commit"):
        OutcomeReader(NOWHERE, group_id="x", properties={"enable.auto.commit": True})
