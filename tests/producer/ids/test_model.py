"""A hostile clock, lost leases and restarts at random: no id twice, and each life's ids rise."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from producer.ids.errors import IdTrouble
from tests.idempotency.making import World
from tests.producer.ids.making import Times, closed, generator_of

LIVES = st.integers(0, 2)
NUMBERS = 4
"""Few, so that each is leased again soon."""


class IdsUnderAttack(RuleBasedStateMachine):
    """Three processes share the numbers of one database. Each has a monotonic clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.world = World(f"sqlite:///{Path(self._folder.name) / 'ids.db'}")
        self.world.open()
        self.world.rows_changed("PRAGMA synchronous = OFF")
        self.world.rows_changed(f"UPDATE id_workers SET until = {2**62} WHERE number >= {NUMBERS}")
        self.times = [Times() for _ in range(3)]
        self.lives = [generator_of(self.world, one) for one in self.times]
        self.last = [-1] * 3
        self.issued: list[int] = []

    @rule(life=LIVES, count=st.sampled_from([1, 2, 5_000, 300_000]))
    def take(self, life: int, count: int) -> None:
        try:
            batch = self.lives[life].batch(count)
        except IdTrouble:
            return
        assert len(batch) == count
        assert batch[0] > self.last[life]
        assert batch[-1] - batch[0] >= count - 1
        self.last[life] = batch[-1]
        # The ends of each block of consecutive ids are enough to find an overlap.
        self.issued.extend(batch if count < 10 else batch[:: count // 500] + batch[-1:])

    @rule(life=LIVES)
    def renew(self, life: int) -> None:
        try:
            self.lives[life].renew()
        except IdTrouble:
            pass

    @rule(ms=st.sampled_from([1, 700, 5_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)
        for one in self.times:
            one.monotonic_s += ms / 1_000

    @rule(ms=st.sampled_from([-90_000, -10_000, -1, 3_000, 3_600_000]))
    def the_database_clock_is_set(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(life=LIVES, seconds=st.sampled_from([1.0, 24.0, 40.0]))
    def a_process_counts_wrongly(self, life: int, seconds: float) -> None:
        self.times[life].monotonic_s += seconds

    @rule(life=LIVES)
    def killed_and_started_again(self, life: int) -> None:
        self.lives[life] = generator_of(self.world, self.times[life])
        self.last[life] = -1

    @rule(life=LIVES)
    def ended_and_started_again(self, life: int) -> None:
        self.lives[life].close()
        self.killed_and_started_again(life)

    @precondition(lambda self: any(one.worker is not None for one in self.lives))
    @rule(number=st.integers(0, NUMBERS - 1))
    def a_lease_is_taken_away(self, number: int) -> None:
        self.world.rows_changed(
            f"UPDATE id_workers SET token = 0, until = 0 WHERE number = {number}"
        )

    @invariant()
    def no_id_is_issued_twice(self) -> None:
        assert len(set(self.issued)) == len(self.issued)

    def teardown(self) -> None:
        closed(self.world)
        self._folder.cleanup()


def _quick(machine: Any) -> Any:
    machine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
    return machine.TestCase


TestIds = _quick(IdsUnderAttack)
