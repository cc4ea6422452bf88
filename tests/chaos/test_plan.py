"""A seed stands for one run, and the run has everything that was asked for."""

from collections import Counter
from itertools import pairwise

import pytest

from tests.chaos.kinds import COUNTS, KILLS, POINTS, STOPS, Kind
from tests.chaos.plan import LANES, LEASE_S, ORDERED, Extent, extent_of, plan

SMALL = Extent(messages=2_000)


def test_a_seed_plans_the_same_run_again_and_another_seed_another() -> None:
    first, again, other = plan(7, SMALL), plan(7, SMALL), plan(8, SMALL)
    assert first == again
    assert list(first.drafts()) == list(again.drafts())
    assert first.faults != other.faults
    assert list(first.drafts()) != list(other.drafts())


def test_every_fault_asked_for_is_there_in_the_order_of_its_moment() -> None:
    planned = plan(7, SMALL)
    assert Counter(f.kind for f in planned.faults) == COUNTS
    assert all(one.at <= next_.at for one, next_ in pairwise(planned.faults))
    assert all(0 < fault.at < 0.95 for fault in planned.faults)


def test_a_run_has_every_kind_of_fault_and_thirty_kills_or_more() -> None:
    assert set(COUNTS) == set(Kind)
    assert all(COUNTS.values())
    assert sum(COUNTS[kind] for kind in KILLS) >= 30
    assert set(POINTS) <= KILLS


def test_a_stopped_process_sleeps_past_its_lease() -> None:
    stops = [f for seed in range(20) for f in plan(seed, SMALL).faults if f.kind in STOPS]
    assert all(fault.down_s > LEASE_S for fault in stops)


def test_the_traffic_has_every_lane_several_receivers_lines_and_repeats() -> None:
    planned = plan(7, SMALL)
    drafts = list(planned.drafts())
    assert len(drafts) == SMALL.messages
    assert {d.lane for d in drafts if not d.again} == set(LANES)
    assert any(d.receivers > 1 for d in drafts)
    assert any(d.again for d in drafts)
    assert {d.lane for d in drafts if d.ordering_key} == {ORDERED}
    assert planned.deliveries == sum(d.receivers for d in drafts if not d.again)


def test_the_extent_comes_from_the_environment_and_empty_means_the_default() -> None:
    assert extent_of({}) == Extent()
    assert extent_of({"MESSAGES": "2000", "FAULTS": ""}) == Extent(messages=2_000)


def test_faults_that_are_named_are_the_only_ones() -> None:
    extent = extent_of({"FAULTS": "kill=2, redis_down"})
    assert extent.counts == ((Kind.KILL, 2), (Kind.REDIS_DOWN, 1))
    with pytest.raises(KeyError):
        extent_of({"FAULTS": "earthquake=1"})
