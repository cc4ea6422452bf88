"""What `hongyan bench spread` calls a miss."""

from __future__ import annotations

from typing import Any

import pytest

from backends.kafka.config import GroupProtocol
from benchmarks.spread import _report


def missed(apart: list[int], one: float, three: float) -> list[str]:
    protocol: GroupProtocol = "consumer"
    report: dict[str, Any] = _report({protocol: apart}, {protocol: {1: [one], 3: [three]}})
    return [ratio["ratio"] for ratio in report["ratios"] if not ratio["holds"]]


def test_an_even_spread_and_three_times_the_work_hold() -> None:
    assert missed([0, 0, 0, 0, 1], 80.0, 230.0) == []


@pytest.mark.parametrize(
    ("apart", "three", "names"),
    [
        ([0, 0, 2, 1, 1], 230.0, "partitions of a lane"),
        ([0, 0, 0, 0, 0], 190.0, "one lane, 3 workers / 1"),
    ],
)
def test_a_lane_on_one_worker_and_a_third_worker_that_brings_nothing_are_misses(
    apart: list[int], three: float, names: str
) -> None:
    (found,) = missed(apart, 80.0, three)
    assert found.startswith(names)
