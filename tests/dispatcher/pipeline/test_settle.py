"""Settle: one commit for a batch, then room in the lanes, then what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Thread
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dispatcher.pipeline import settle as stage_module
from dispatcher.pipeline.binding import bind
from dispatcher.pipeline.completion import SettledBatch
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.settle import LINGER_S, SETTLE_BATCH, Settle
from dispatcher.pipeline.work import EndedAtClaim, HandOver, Work
from message.outcomes import Accepted
from message.states import Event, State
from policy.schema import Guarantee, Ordering
from sending.endings import NotStarted
from tests.chaos.test_guards import Bench
from tests.dispatcher.fakes import LANE


class Settling(Bench):
    """A settle stage whose successors only take notes."""

    def __init__(self) -> None:
        super().__init__()
        self.followed: list[SettledBatch] = []
        self.rode: list[tuple[int, dict[str, int]]] = []
        self.best_effort: list[Work] = []
        self.report = SimpleNamespace(best_effort=lambda work, _: self.best_effort.append(work))

    def stage(self, **changes: Any) -> Settle:
        contract: Any = self
        given: dict[str, Any] = {
            "outage": self.outage,
            "report": self.report,
            "clock": self.clock,
            "finished": self.finished,
            "on_settled": self._follow,
            "on_room": lambda: self.calls.append("room"),
        }
        return Settle({LANE.name: self.pool}, contract, **(given | changes))

    def ended(self, number: int, **fields: Any) -> Work:
        """Work whose call was accepted, and which holds a place in its lane."""
        work = self.work(number)
        work.end, work.taken = Accepted("p"), True
        for name, value in fields.items():
            setattr(work, name, value)
        return work

    def _follow(self, settled: SettledBatch) -> None:
        self.calls.append("follow")
        self.followed.append(settled)


@pytest.fixture
def bench() -> Iterator[Settling]:
    bench = Settling()
    yield bench
    bench.pool.close()


def test_a_batch_is_one_commit_then_room_then_what_follows(bench: Settling) -> None:
    bench.stage().settle([bench.ended(0), bench.ended(1), bench.ended(2)])
    assert bench.calls == ["ledger", "room", "follow"]
    assert [one.event for one in bench.settled] == [Event.ACCEPTED] * 3


def test_as_many_places_are_freed_as_the_batch_held(bench: Settling) -> None:
    before = bench.pool.settled_count
    bench.stage().settle([bench.ended(0), bench.ended(1, taken=False), bench.ended(2)])
    assert bench.pool.settled_count - before == 2


def test_what_follows_gets_the_whole_batch_and_what_was_written(bench: Settling) -> None:
    held = bench.ended(0)
    over = HandOver(bench.ended(1).record)
    bench.written = False
    bench.stage().settle([held, over])
    (settled,) = bench.followed
    assert list(settled.batch) == [held, over]
    assert [work for work, _ in settled.pairs] == [held]
    assert list(settled.written) == [False]


def test_a_batch_without_an_outcome_asks_no_ledger(bench: Settling) -> None:
    bench.stage().settle([HandOver(bench.ended(0).record)])
    assert bench.calls == ["room", "follow"]


def test_what_ended_at_intake_is_in_the_ledger_already(bench: Settling) -> None:
    known = bench.ended(0, end=EndedAtClaim(State.DROPPED, "recalled"))
    bench.stage().settle([known])
    assert bench.settled == []
    assert list(bench.followed[0].batch) == [known]


def test_best_effort_is_reported_and_not_written(bench: Settling) -> None:
    work = bench.ended(0)
    bind(work, bench.pool.terms)
    of_lane = work.bound
    policy = msgspec.structs.replace(of_lane.policy, guarantee=Guarantee.BEST_EFFORT)
    work.terms = LaneConfig(of_lane.version, policy, of_lane.routes, of_lane.accounts)
    bench.stage().settle([work])
    assert bench.best_effort == [work]
    assert bench.settled == []


def test_what_was_given_back_is_left_to_the_next_reader(bench: Settling) -> None:
    work = bench.ended(0, end=NotStarted(Event.GIVEN_BACK, "given_back"))
    bench.stage().settle([work])
    assert work.record.given_back
    assert [one.event for one in bench.settled] == [Event.GIVEN_BACK]


def test_a_worker_that_must_go_leaves_what_it_cannot_write_and_counts_it(bench: Settling) -> None:
    bench.away = True
    stage, works = bench.stage(), [bench.ended(0), bench.ended(1)]
    stage.settle(works)
    assert stage.abandoned == 2
    assert all(work.record.given_back for work in works)
    assert bench.followed == [SettledBatch(works)]


def test_claims_ride_along_with_the_commit_for_the_places_that_it_frees(bench: Settling) -> None:
    def ride(settlements: Sequence[Any], places: dict[str, int]) -> list[bool]:
        bench.rode.append((len(settlements), dict(places)))
        return [True] * len(settlements)

    bench.stage(combined_commit=SimpleNamespace(settle=ride)).settle(
        [bench.ended(0), bench.ended(1)]
    )
    assert bench.rode == [(2, {LANE.name: 2})]
    assert bench.settled == []


def test_without_claims_to_ride_the_commit_is_its_own(bench: Settling) -> None:
    bench.stage(combined_commit=SimpleNamespace(settle=lambda *_: None)).settle([bench.ended(0)])
    assert len(bench.settled) == 1


def test_the_lanes_that_keep_order_are_named_to_the_ledger(bench: Settling) -> None:
    named: list[frozenset[str]] = []
    write = bench.settle

    def settle(settlements: Sequence[Any], ordered: frozenset[str]) -> list[bool]:
        named.append(ordered)
        return write(settlements, ordered)

    bench.settle = settle  # type: ignore[method-assign, assignment]
    terms = bench.pool.terms
    policy = msgspec.structs.replace(terms.policy, ordering=Ordering.KEY)
    bench.pool.adopt(LaneConfig("", policy, terms.routes, terms.accounts))
    bench.stage().settle([bench.ended(0)])
    assert named == [{LANE.name}]


def test_the_thread_ends_only_when_nothing_is_left(bench: Settling) -> None:
    stage = bench.stage()
    count = SETTLE_BATCH + 1
    for number in range(count):
        bench.finished.put(bench.ended(number))
    stage.stop()
    thread = Thread(target=stage.run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert [len(one.batch) for one in bench.followed] == [SETTLE_BATCH, 1]
    assert len(bench.settled) == count


@pytest.mark.parametrize(("under_way", "ended", "waits"), [(8, 2, 1), (8, 6, 0), (1, 1, 0)])
def test_a_commit_waits_for_a_moment_where_much_more_is_under_way(
    bench: Settling, monkeypatch: pytest.MonkeyPatch, under_way: int, ended: int, waits: int
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        bench.finished.put(bench.ended(99))

    monkeypatch.setattr(stage_module, "time", SimpleNamespace(sleep=sleep))
    stage = bench.stage()
    bench.pool.claimed_count = bench.pool.settled_count + under_way
    for number in range(ended):
        bench.finished.put(bench.ended(number))
    assert len(stage._gather()) == ended + waits
    assert slept == [LINGER_S] * waits
    stage.stop()
    bench.finished.put(bench.ended(100))
    assert len(stage._gather()) == 1, "the drain waits for nothing"
