"""The report of a run of the fleet names what grew, was lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from benchmarks import fleet
from benchmarks.fleet import FleetRunSize
from benchmarks.fleet_processes import ProcessUsage
from benchmarks.fleet_traffic import FleetTraffic

PROMISED = 100


class Promises:
    """The part of the traffic that a report reads."""

    def promised(self) -> int:
        return PROMISED

    def by_way(self) -> dict[str, int]:
        return {"client": PROMISED}


def report(
    samples: Sequence[ProcessUsage], states: dict[str, int], doubled: int = 0
) -> dict[str, Any]:
    growths = [fleet._growth("worker-1", samples)]
    traffic = cast(FleetTraffic, Promises())
    return fleet._report(FleetRunSize(), traffic, growths, states, doubled)


def missed(found: dict[str, Any]) -> list[str]:
    return [ratio["ratio"] for ratio in found["ratios"] if not ratio["holds"]]


STEADY = [ProcessUsage(100.0, 50, 20)] * 40
SENT = {"SENT": 60, "DELIVERED": 39, "UNDELIVERED": 1}


def test_a_steady_fleet_that_sent_all_holds() -> None:
    found = report(STEADY, SENT)
    assert missed(found) == []
    assert found["medians"]["worker-1"]["last_quarter_mib"] == 100.0


def test_the_first_quarter_is_not_judged() -> None:
    warming = [ProcessUsage(40.0, 5, 2)] * 10
    assert missed(report([*warming, *STEADY[:30]], SENT)) == []


@pytest.mark.parametrize(
    ("last", "named"),
    [
        (ProcessUsage(108.1, 50, 20), "MiB grown, worker-1"),
        (ProcessUsage(100.0, 59, 20), "files grown, the most"),
        (ProcessUsage(100.0, 50, 23), "threads grown, the most"),
    ],
)
def test_what_grows_after_it_is_named(last: ProcessUsage, named: str) -> None:
    assert missed(report([*STEADY[:30], *[last] * 10], SENT)) == [named]


def test_one_that_has_not_ended_is_lost() -> None:
    assert missed(report(STEADY, {**SENT, "SENT": 59, "UNKNOWN": 1})) == ["lost"]


def test_a_double_is_named() -> None:
    assert missed(report(STEADY, SENT, doubled=1)) == ["doubled"]


def test_what_was_rolled_back_is_named_and_makes_up_for_no_lost_one() -> None:
    found = report(STEADY, {**SENT, "SENT": 59, "rolled-back": 1})
    assert missed(found) == ["lost", "in the ledger, though rolled back"]
