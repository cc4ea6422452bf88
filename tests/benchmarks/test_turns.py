"""Two trees in turns: what a round's figures come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.meter import Stretch
from benchmarks.turns import ALLOWED, BARE, COMPARED, _order, compared, report
from deploy.local.layout import REPOSITORY

OTHER = Path("/elsewhere")


def runs(
    before: list[float], after: list[float], bare: list[float]
) -> dict[tuple[str, str], list[Stretch]]:
    def of(rates: list[float], cpu: float) -> list[Stretch]:
        return [Stretch(1, 1.0, cpu, rate, 1.0) for rate in rates]

    return {
        ("before", "worker"): of(before, 100.0),
        ("after", "worker"): of(after, 110.0),
        ("after", BARE.name): of(bare, 80.0),
    }


def test_each_round_is_compared_with_itself() -> None:
    found = compared("worker", runs([1_000, 500, 1_000], [900, 450, 900], [2_000, 1_000, 2_000]))
    assert (found.rate, found.cpu) == (0.9, 1.1)
    assert (found.share_before, found.share_after) == (0.5, 0.45)
    assert (found.before, found.after) == (1_000, 900)


@pytest.mark.parametrize(("after", "holds"), [(1_000, True), (961, True), (959, False)])
def test_a_share_may_be_lower_by_what_is_allowed(after: float, holds: bool) -> None:
    assert ALLOWED == 0.02
    assert compared("worker", runs([1_000] * 3, [after] * 3, [2_000] * 3)).holds is holds


def test_the_trees_take_turns_at_being_first() -> None:
    first, second = list(_order(1, OTHER)), list(_order(2, OTHER))
    assert [tree for tree, _ in first[:2]] == [OTHER, REPOSITORY]
    assert [tree for tree, _ in second[:2]] == [REPOSITORY, OTHER]
    assert [variant for _, variant in first] == [variant for _, variant in second]
    assert first[-1] == (REPOSITORY, BARE)
    assert {variant for _, variant in first} == {*COMPARED, BARE}


def test_a_share_that_is_too_low_is_a_ratio_that_is_missed() -> None:
    found = report([compared("worker", runs([1_000] * 3, [900] * 3, [2_000] * 3))])
    assert found["medians"]["worker"]["rate"] == 0.9
    (ratio,) = found["ratios"]
    assert (ratio["median"], ratio["wanted"], ratio["holds"]) == (0.45, 0.48, False)
