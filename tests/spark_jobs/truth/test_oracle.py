"""The oracle of lost deliveries on made-up worlds: every cause, and every way to be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.notifications import notification, now_ms
from tests.harness.wire import Committed, Place, Sent
from tests.spark_jobs.truth.oracle import Expected, Finding, World, judge, offsets_of

PLACE = Place("t.dispatch.webhook.notice", 0)
OFFSET = 7


def record(**changes: Any) -> Sent:
    one = notification(receivers=["to-a"], **changes)
    return Sent(PLACE, OFFSET, b"", one, ["key-a"])


def world(**changes: Any) -> World:
    known: dict[str, Any] = {
        "rows": (),
        "accepted": (),
        "committed": {PLACE: Committed(0, "")},
        "starts": {PLACE: 0},
        "dead": (),
        "recalled": (),
        "unkept": (),
        "never_ingested": (),
        "now": now_ms(),
    }
    return World(**{**known, **changes})


def expected(one: Sent, seen: World) -> Expected:
    found = Expected()
    found.add([one], seen)
    return found


PASSED = {PLACE: Committed(OFFSET + 1, "")}
REMOVED = {PLACE: OFFSET + 1}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"committed": PASSED}, "passed"),
        ({"starts": REMOVED}, "removed"),
        ({"committed": PASSED, "starts": REMOVED}, "passed"),
        ({"now": now_ms() + 86_400_000}, "unread"),
        ({"committed": PASSED, "accepted": {"to-a"}}, "forgotten"),
    ],
)
def test_a_delivery_without_a_row_is_lost_by_its_cause(changes: dict[str, Any], cause: str) -> None:
    assert expected(record(ttl_ms=1_000), world(**changes)).keys == {cause: {"key-a"}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"committed": PASSED, "rows": {"key-a"}},
        {"committed": PASSED, "dead": {f"{PLACE.topic}/0/{OFFSET}"}},
        {"committed": PASSED, "unkept": {PLACE.topic}},
    ],
)
def test_what_waits_has_a_row_is_dead_or_has_no_ledger_is_not_lost(changes: dict[str, Any]) -> None:
    assert expected(record(), world(**changes)).keys == {}


def test_a_recalled_notification_is_not_lost() -> None:
    one = record(id="recalled")
    assert expected(one, world(committed=PASSED, recalled={"recalled"})).keys == {}
    assert expected(one, world(committed=PASSED, recalled={"another"})).keys != {}


def test_a_record_that_nobody_ingested_is_a_hole_whatever_else_is_true() -> None:
    seen = world(never_ingested={(PLACE, OFFSET)}, committed=PASSED, starts=REMOVED)
    found = expected(record(), seen)
    assert found.holes == {(PLACE, OFFSET)}
    assert found.keys == {}


def test_a_delivery_keeps_its_first_cause_when_the_world_moves_on() -> None:
    found = expected(record(), world(starts=REMOVED))
    found.add([record()], world(starts=REMOVED, committed=PASSED))
    found.add([record()], world(rows={"key-a"}))
    assert found.keys == {"removed": {"key-a"}}


def test_a_delivery_that_was_sent_again_can_be_lost_once_more() -> None:
    found = expected(record(), world(committed=PASSED))
    found.add([record()], world(rows={"key-a"}, committed=PASSED))
    found.add([record()], world(accepted={"to-a"}, committed=PASSED))
    assert found.keys == {"passed": {"key-a"}, "forgotten": {"key-a"}}


def told(subject: str, cause: str) -> Finding:
    return Finding(subject, cause, "webhook.notice", "NEW")


def test_full_precision_and_recall_leave_no_problem() -> None:
    wanted = expected(record(), world(committed=PASSED))
    assert judge(wanted, [told("key-a", "passed")], {"key-a": (PLACE, OFFSET)}) == []


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([], "passed: 1 of 1 not found"),
        ([("key-a", "passed"), ("key-b", "passed")], "passed: 1 found and not lost: key-b"),
        ([("key-a", "passed"), ("key-a", "open")], "open: 1 found and not lost: key-a"),
        ([("key-a", "removed")], "passed: 1 of 1 not found"),
        ([("key-a", "passed"), ("key-a", "passed")], "is there twice"),
        ([("key-a", "passed"), (f"{PLACE.topic}/0/7-7", "hole")], "hole: 1 found and not lost"),
    ],
)
def test_one_finding_too_few_too_many_or_by_another_cause_is_a_problem(
    found: list[tuple[str, str]], problem: str
) -> None:
    wanted = expected(record(), world(committed=PASSED))
    problems = judge(wanted, [told(*one) for one in found], {"key-a": (PLACE, OFFSET)})
    assert any(problem in line for line in problems), problems


def test_a_hole_is_named_by_its_offsets_or_by_its_deliveries() -> None:
    places = {"key-a": (PLACE, OFFSET)}
    assert offsets_of("key-a", places) == {(PLACE, OFFSET)}
    assert offsets_of(f"{PLACE.topic}/0/5-7", places) == {(PLACE, n) for n in (5, 6, 7)}
