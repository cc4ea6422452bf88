"""Keeps, outages, restarts, lost answers and time at random, against a list in memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hongyan_client.spool.store import KeptRecord
from tests.hongyan_client.spool.making import NEVER, TOPIC, Bench, FakeKafka, record

KEYS = st.sampled_from(["a", "b", "c"])


class SpoolUnderAttack(RuleBasedStateMachine):
    """The order of a key, and the whereabouts of every record."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.kafka = FakeKafka()
        self.bench = self._opened()
        self.kept: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        self.ends_at: dict[int, int] = {}
        self.number = 0

    def _opened(self) -> Bench:
        return Bench(Path(self._folder.name) / "spool", self.kafka)

    @rule(key=KEYS, count=st.integers(1, 5), ttl=st.sampled_from([None, 1_000]))
    def keep(self, key: str, count: int, ttl: int | None) -> None:
        batch = []
        for _ in range(count):
            self.number += 1
            self.ends_at[self.number] = NEVER if ttl is None else self.bench.now + ttl
            self.kept[key].append(self.number)
            batch.append(KeptRecord(record(self.number, key), self.ends_at[self.number]))
        self.bench.store.keep(batch, self.bench.folder.marker, self.bench.now)

    @rule()
    def drain(self) -> None:
        self.bench.drain()
        if not (self.kafka.away or self.kafka.lose_answers):
            assert self.bench.store.counts().waiting == 0
            assert not self.bench.folder.marker.waiting

    @rule(away=st.booleans())
    def broker(self, away: bool) -> None:
        self.kafka.away = away

    @rule(lost=st.booleans())
    def answers(self, lost: bool) -> None:
        self.kafka.lose_answers = lost

    @rule(ms=st.sampled_from([-500, 400, 1_500]))
    def time_passes(self, ms: int) -> None:
        self.bench.now += ms

    @rule()
    def restart(self) -> None:
        now = self.bench.now
        self.bench.close()
        self.bench = self._opened()
        self.bench.now = now

    @invariant()
    def first_arrivals_of_a_key_are_in_order(self) -> None:
        for key in self.kept:
            first = list(dict.fromkeys(self.kafka.numbers(key)))
            assert first == sorted(first)

    @invariant()
    def every_record_is_in_kafka_waits_or_expired_and_is_listed(self) -> None:
        rows = {int(row.value) for row in self.bench.store.rows(10_000)}
        arrived = {int(one.value) for one in self.kafka.arrived}
        ended = {one[0] for one in self.bench.store.ended(10_000)}
        for number in range(1, self.number + 1):
            assert number in rows | arrived | ended
            if number in ended:
                assert self.ends_at[number] < NEVER
        assert len(ended) == self.bench.store.counts().counters.get("expired", 0)

    @invariant()
    def a_key_is_held_while_its_records_wait(self) -> None:
        waiting = {row.key for row in self.bench.store.rows(10_000)}
        for key in self.kept:
            held = self.bench.store.holds(TOPIC, key.encode())
            assert held == (key.encode() in waiting)
        assert self.bench.folder.marker.waiting or not waiting

    def teardown(self) -> None:
        self.bench.close()
        self._folder.cleanup()


def _quick(machine: Any) -> Any:
    machine.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
    return machine.TestCase


TestSpool = _quick(SpoolUnderAttack)
