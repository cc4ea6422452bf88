"""Claims that ride along with a settlement: how many, which, and what becomes of them when it fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.settle import CombinedCommit
from dispatcher.pipeline.work import GIVEN_UP, AlreadyKnown, Work
from idempotency.ledger import Claimed, LedgerUnavailable, Settlement
from message.outcomes import Accepted
from message.states import Event, State
from tests.chaos.test_guards import Bench
from tests.dispatcher.fakes import LANE


class Riding(Bench):
    """A lane of two places, both of them at work, with more behind them."""

    def __init__(self, waiting: int = 5) -> None:
        super().__init__()
        self.taking: Intake = self.intake()
        self.taking.offer([self.work(number) for number in range(2)])
        self.taking.run_once()
        self.flying = self.queued()
        self.pool._queue._items.clear()
        self.calls.clear()
        self.claimed.clear()
        self.taking.offer([self.work(10 + number) for number in range(waiting)])
        self.combined_commit = CombinedCommit(self.taking, self.gate)

    def outcomes(self, count: int = 2) -> list[Settlement]:
        return [Settlement(work.delivery, Event.ACCEPTED) for work in self.flying[:count]]

    def ride(self, count: int = 2) -> list[bool] | None:
        return self.combined_commit.settle(self.outcomes(count), {LANE.name: count})

    def queued(self) -> list[Work]:
        return [work for call in self.pool._queue._items if isinstance(call, list) for work in call]


@pytest.fixture
def bench() -> Iterator[Riding]:
    bench = Riding()
    yield bench
    bench.pool.close()


@pytest.mark.parametrize("freed", [1, 2])
def test_as_many_are_claimed_as_the_commit_frees_places(bench: Riding, freed: int) -> None:
    assert bench.ride(freed) == [True] * freed
    assert bench.calls == ["ledger", "claim"]
    assert len(bench.claimed) == len(bench.queued()) == freed
    assert bench.pool.unsettled == 2 + freed, "settle frees the places when it knows of the commit"


def test_no_more_ride_than_there_are(bench: Riding) -> None:
    bench.taking.run_once()
    few = Riding(waiting=1)
    assert few.ride() == [True, True]
    assert len(few.claimed) == 1
    few.pool.close()


def test_with_nothing_to_claim_nothing_is_done(bench: Riding) -> None:
    empty = Riding(waiting=0)
    assert empty.ride() is None
    assert empty.calls == []
    empty.pool.close()


def test_lanes_that_lock_their_lines_do_not_ride(bench: Riding) -> None:
    bench.gate._ordered = frozenset({LANE.name})
    assert bench.ride() is None
    assert bench.calls == []


def test_a_worker_that_stops_claims_nothing(bench: Riding) -> None:
    bench.taking.stop()
    assert bench.ride() is None
    assert bench.calls == []


def test_while_intake_is_at_it_settle_goes_alone(bench: Riding) -> None:
    with bench.taking.claiming:
        assert bench.ride() is None
    assert bench.calls == []
    assert bench.ride() == [True, True]


def test_what_is_not_won_ends_here(bench: Riding) -> None:
    bench.answer = Claimed(False, State.SENT)
    bench.ride()
    assert bench.queued() == []
    ended = [bench.finished.get_nowait() for _ in range(2)]
    known = AlreadyKnown(State.SENT, "duplicate")
    assert [one.end for one in ended if isinstance(one, Work)] == [known] * 2


def test_with_a_lapsed_lease_the_outcomes_are_written_and_intake_claims_later(
    bench: Riding,
) -> None:
    bench.lease_holds = False
    assert bench.ride() == [True, True]
    assert bench.calls == ["ledger"]
    assert bench.finished.empty(), "settle waits for no lease: there may be more outcomes"
    bench.lease_holds = True
    bench.taking.run_once()
    assert bench.calls == ["ledger", "claim"]
    assert len(bench.queued()) == 2


def test_what_was_left_to_intake_is_given_up_as_the_worker_stops(bench: Riding) -> None:
    bench.lease_holds = False
    bench.ride()
    bench.taking.stop()
    bench.taking.run_once()
    given_up = [bench.finished.get_nowait() for _ in range(5)]
    assert all(isinstance(one, Work) and one.end == GIVEN_UP for one in given_up)
    assert sum(isinstance(one, Work) and one.taken for one in given_up) == 2


def test_when_the_worker_must_go_and_the_ledger_is_away_the_claims_are_given_up(
    bench: Riding,
) -> None:
    bench.away = True
    with pytest.raises(LedgerUnavailable):
        bench.ride()
    given_up = [bench.finished.get_nowait() for _ in range(2)]
    assert all(isinstance(one, Work) and one.end == GIVEN_UP for one in given_up)
    assert bench.taking.claiming.acquire(blocking=False)


def test_settle_goes_with_claims_where_there_are_any(bench: Riding) -> None:
    settle = bench.settling()
    settle._combined_commit = bench.combined_commit
    for work in bench.flying:
        work.end = Accepted("p")
        work.record.open_deliveries = 1
    settle.settle(bench.flying)
    assert bench.calls == ["ledger", "claim", "room", "redis 2", "source 2"]
    assert bench.pool.unsettled == 2
    settle.settle([])
    assert len(bench.claimed) == 2
