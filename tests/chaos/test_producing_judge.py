"""The judges of the producing side's chaos find each broken promise in made-up books."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.producing.business import WorkList
from tests.chaos.producing.extent import Extent, Way
from tests.chaos.producing.journal_run import JournalBooks, journal_problems
from tests.chaos.producing.judge import Acceptance, ProducingBooks, judge
from tests.chaos.producing.teller import Yes

EXTENT = Extent(seed=7, committed=5, refused=1)
"""The sixth is rolled back."""
ORDERS = {0: "m0", 1: "m1", 2: "m2", 3: "m3", 4: "m4"}
ACCEPTED = [Acceptance(one, f"order-{number}") for number, one in ORDERS.items()]
GOOD = ProducingBooks(
    extent=EXTENT,
    orders=ORDERS,
    refused={5},
    accepted=ACCEPTED,
    ledger={"SENT": 5},
    outbox={"SENT": 3},
    lookback={"FORWARDED": 2, "ROLLED_BACK": 1},
    kills={"relay": 2, "broker": 1},
)
YESES = JournalBooks(
    yeses=[Yes("a", spooled=False), Yes("b", spooled=True)],
    states={"a": "SENT", "b": "DELIVERED"},
    accepted=Counter(["a", "b"]),
    found_lost=[],
    ingested=2,
    kills={"teller": 1},
    troubles=[],
)


def test_good_books_have_no_problem() -> None:
    found = judge(GOOD)
    assert found.problems == []
    assert (found.committed, found.refused) == (5, 1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"accepted": ACCEPTED[1:]}, "committed, and never sent: orders 0"),
        ({"accepted": [*ACCEPTED, ACCEPTED[0]]}, "sent more than once: m0"),
        (
            {"accepted": [*ACCEPTED, Acceptance("m9", "order-5")]},
            "sent, and not committed: order-5",
        ),
        (
            {"accepted": [Acceptance("m0", "order-4"), *ACCEPTED[1:]]},
            "sent to another receiver: order-4",
        ),
        ({"orders": {**ORDERS, 4: None}}, "orders without an answer of a gateway: 4"),
        ({"orders": {**ORDERS, 5: "m5"}}, "orders that the deals do not have: 5"),
        ({"refused": set()}, "the business did not roll back what its deals say"),
        ({"ledger": {"SENT": 4, "PARKED": 1}}, "ledger: not at a good end: {'PARKED': 1}"),
        ({"outbox": {"SENT": 2, "PENDING": 1}}, "outbox: not at a good end: {'PENDING': 1}"),
        ({"lookback": {"UNRESOLVED": 1}}, "look-back: not at a good end: {'UNRESOLVED': 1}"),
        ({"kills": {"relay": 0}}, "nothing of this kind was killed: relay"),
        ({"troubles": ["relay r1: 1"]}, "relay r1: 1"),
    ],
)
def test_a_broken_promise_is_named(changes: dict[str, object], problem: str) -> None:
    found = judge(replace(GOOD, **changes))  # type: ignore[arg-type]
    assert any(one.startswith(problem) for one in found.problems), found.problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"states": {"a": "SENT"}}, "answered yes, and not sent: ['b']"),
        ({"accepted": Counter(["a"])}, "the provider did not accept exactly once: ['b']"),
        ({"accepted": Counter(["a", "a", "b"])}, "the provider did not accept exactly once: ['a']"),
        ({"found_lost": [("k", "passed")]}, "`hongyan spark lost` found [('k', 'passed')]"),
        ({"ingested": 1}, "the jobs read 1 records of 2"),
        ({"yeses": [Yes("a", spooled=False)]}, "no yes came from a spool"),
        ({"kills": {"teller": 0}}, "nothing of this kind was killed: teller"),
        ({"troubles": ["teller t1: 1"]}, "teller t1: 1"),
    ],
)
def test_a_lost_yes_is_named(changes: dict[str, object], problem: str) -> None:
    found = list(journal_problems(replace(YESES, **changes)))  # type: ignore[arg-type]
    assert any(one.startswith(problem) for one in found), found


def test_kept_journals_have_no_problem() -> None:
    assert list(journal_problems(YESES)) == []


def test_one_in_six_is_rolled_back_and_each_way_is_taken() -> None:
    deals = list(Extent(seed=7, committed=1_000, refused=200).deals())
    assert sum(not deal.commits for deal in deals) == 200
    assert {deal.way for deal in deals} == set(Way)
    assert {deal.way for deal in deals if not deal.commits} == set(Way)


def test_a_number_that_was_put_back_comes_again_later() -> None:
    now = [0.0]
    work = WorkList([EXTENT.deal(0)], monotonic=lambda: now[0])
    deal = work.take()
    assert deal is not None
    assert work.take() is None
    work.put_back(deal)
    assert work.take() is None
    now[0] += 1.0
    assert work.take() == deal
    work.end()
    assert not work.left
