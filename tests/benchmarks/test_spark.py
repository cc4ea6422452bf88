"""The report of `hongyan bench spark`: every bar can be missed, and a plan with Python is seen."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.spark import Measured, a_day, report
from benchmarks.spark_lost import LostStep
from benchmarks.spark_meter import Step, runs_python
from hongyan.commands.bench import sizes_of
from hongyan.errors import WrongUsage


def step(seconds: float, python: list[str] | None = None) -> Step:
    return Step(seconds=seconds, shuffled_bytes=1_000, peak_rss_mib=900.0, python=python or [])


def measured(events: int, rebuild: float, bare: float = 100.0) -> Measured:
    return Measured(events, step(bare), step(rebuild))


NOTHING = LostStep(seconds=5, keys_asked=0, ledger_rows=0, found=0)


def held(*sizes: Measured, increment: Step, lost: LostStep = NOTHING) -> dict[str, bool]:
    found: list[dict[str, Any]] = report(sizes, increment, lost)["ratios"]
    return {one["ratio"]: one["holds"] for one in found}


GOOD = (measured(1_000_000, 12, 10), measured(10_000_000, 120))


def test_every_bar_holds_where_all_is_well() -> None:
    assert set(held(*GOOD, increment=step(20)).values()) == {True}


@pytest.mark.parametrize(
    ("sizes", "increment", "missed"),
    [
        ((measured(1_000_000, 10, 10), measured(10_000_000, 111)), step(20), "10 × the data"),
        ((GOOD[0], measured(10_000_000, 120, bare=79)), step(20), "rebuild / bare, 10,000,000"),
        (GOOD, step(25), "a tenth more / the whole"),
        (GOOD, step(20, ["BatchEvalPython [f(x)]"]), "plans with a Python function"),
    ],
)
def test_one_bar_missed_is_named(sizes: tuple[Measured, ...], increment: Step, missed: str) -> None:
    (name,) = [name for name, holds in held(*sizes, increment=increment).items() if not holds]
    assert missed in name


@pytest.mark.parametrize(
    ("lost", "missed"),
    [
        (LostStep(seconds=5, keys_asked=9, ledger_rows=9, found=0), "ledger rows read"),
        (LostStep(seconds=5, keys_asked=9, ledger_rows=0, found=9), "deliveries found lost"),
    ],
)
def test_a_job_that_asks_for_what_the_trace_shows_is_named(lost: LostStep, missed: str) -> None:
    found = held(*GOOD, increment=step(20), lost=lost)
    (name,) = [name for name, holds in found.items() if not holds]
    assert missed in name


def test_a_day_of_a_hundred_million_goes_by_the_largest_size() -> None:
    found = a_day(measured(10_000_000, 360))
    assert found["hours_on_two_cores"] == 2.0
    assert found["cores_for_one_hour"] == 4.0


@pytest.mark.parametrize(
    ("plan", "python"),
    [
        ("*(2) HashAggregate(keys=[delivery_key#1])", False),
        ("+- BatchEvalPython [mask(receiver#3)#9]", True),
        ("+- ArrowEvalPython [mask(receiver#3)#9], 200", True),
        ("MapInPandas f(id#0L)", True),
    ],
)
def test_a_plan_that_runs_python_is_seen(plan: str, python: bool) -> None:
    assert runs_python(plan) is python


@pytest.mark.parametrize("text", ["many", "1000000,", "0", "-5,100"])
def test_sizes_that_are_no_numbers_of_events_are_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--sizes"):
        sizes_of(text)


def test_sizes_may_have_underscores() -> None:
    assert sizes_of("1_000_000,3000000") == [1_000_000, 3_000_000]
