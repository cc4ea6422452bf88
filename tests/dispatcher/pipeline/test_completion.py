"""What follows a commit: in its order, for several commits at once, and without keeping anyone waiting."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline import completion as stage
from dispatcher.pipeline.completion import CompletionStage, SettledBatch
from dispatcher.pipeline.work import Assignment, KafkaRecord, Work
from idempotency.ledger import Settlement
from idempotency.payload_cipher import body_digest
from message.delivery import deliveries_of
from message.states import Event
from message.vocabulary import Lane
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, notification

PATIENCE_S = 10.0


class Bench:
    """An aftermath whose neighbours note what they are told, in order."""

    def __init__(self, hurried: frozenset[Lane] = frozenset()) -> None:
        self.told: SimpleQueue[str] = SimpleQueue()
        self.marks: list[tuple[str, bytes]] = []
        contract: Any = self
        pool: Any = SimpleNamespace(leased=True)
        self.completion = CompletionStage(
            {LANE.name: pool},
            contract,
            report=contract,
            clock=Clock(),
            on_records=lambda records: self.told.put(f"source {len(records)}"),
            hurried=hurried,
        )

    def mark(self, marks: Sequence[tuple[str, bytes]]) -> None:
        self.marks += marks
        self.told.put(f"redis {len(marks)}")

    def settled(self, pairs: Sequence[Any], _written: Sequence[bool], _seconds: float) -> None:
        self.told.put(f"settled {len(pairs)}")

    def ended(self, works: Sequence[Work]) -> None:
        """Nothing ended at intake here."""

    def run(self) -> threading.Thread:
        thread = threading.Thread(target=self.completion.run, daemon=True)
        thread.start()
        return thread

    def hear(self, count: int) -> list[str]:
        return [self.told.get(timeout=PATIENCE_S) for _ in range(count)]


def committed(*numbers: int) -> SettledBatch:
    """One commit of so many sent deliveries, each of a record of its own."""
    works = []
    for number in numbers:
        one = notification(number)
        record = KafkaRecord(
            Assignment(TOPIC, 0, LANE, Offsets()), number, one, b"{}", NOW_MS, None
        )
        record.open_deliveries = 1
        (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS)
        works.append(Work(delivery, record))
    pairs = [(work, Settlement(work.delivery, Event.ACCEPTED)) for work in works]
    return SettledBatch(works, pairs, [True] * len(pairs), 0.001)


def test_several_commits_are_followed_together_and_each_is_told_of() -> None:
    bench = Bench()
    bench.completion.put(committed(1, 2))
    bench.completion.put(committed(3))
    bench.run()
    assert bench.hear(4) == ["redis 3", "settled 2", "settled 1", "source 3"]
    bench.completion.stop()


def test_an_ordered_lane_is_not_kept_waiting(monkeypatch: Any) -> None:
    monkeypatch.setattr(stage, "LINGER_S", 2 * PATIENCE_S)
    bench = Bench(hurried=frozenset({LANE}))
    bench.run()
    for number in range(3):
        bench.completion.put(committed(number))
        assert bench.hear(3) == ["redis 1", "settled 1", "source 1"]
    bench.completion.stop()


def test_the_stop_waits_for_nothing_and_leaves_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(stage, "LINGER_S", 2 * PATIENCE_S)
    bench = Bench()
    thread = bench.run()
    bench.completion.put(committed(1))
    bench.completion.put(committed(2, 3))
    bench.completion.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert sum(int(said.split()[1]) for said in drained(bench) if "source" in said) == 3


def test_no_question_to_redis_grows_beyond_its_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(stage, "_AT_ONCE", 4)
    bench = Bench()
    for first in (0, 3, 6):
        bench.completion.put(committed(first, first + 1, first + 2))
    bench.run()
    assert [said for said in bench.hear(7) if "redis" in said] == ["redis 6", "redis 3"]
    bench.completion.stop()


def test_a_mark_is_the_digest_that_the_claim_put_on_record_or_the_same() -> None:
    bench = Bench()
    known, unknown = committed(1), committed(2)
    known.pairs[0][0].delivery.body_digest = b"as the claim made it"
    bench.completion.follow(known, unknown)
    assert [digest for _, digest in bench.marks] == [b"as the claim made it", body_digest(b"{}")]


def drained(bench: Bench) -> list[str]:
    said = []
    while not bench.told.empty():
        said.append(bench.told.get())
    return said
