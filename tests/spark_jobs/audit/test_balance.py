"""Differences of an hour: their explanations, by cause, and the rest that is left open."""

from __future__ import annotations

from typing import Any

import pytest

from hongyan.spark.audit import open_hours
from idempotency.lost.audits import Audit
from spark_jobs.audit.balance import HourCounts, Life, balanced
from spark_jobs.audit.counts import HOUR_MS

HOUR = 500_000 * HOUR_MS
WHOLE: dict[str, Any] = {"kafka": 10, "passed": 10, "rows_passed": 10, "traced": 10}


def row(
    lives: list[Life] | None = None, **changes: Any
) -> tuple[dict[str, Any], dict[str, int], int]:
    """Explained, open, unexplained of one hour in which all agrees but for the changes."""
    (one,) = balanced([HourCounts("sms.notice", HOUR, **WHOLE | changes)], lives or [])
    return one.counts["explained"], one.counts["open"], one.unexplained


def life(lost: int = 0, *, killed: bool = False, at: int = HOUR) -> Life:
    return Life(at, at + 1_000, lost, killed)


def test_sources_that_agree_leave_nothing() -> None:
    assert row() == ({}, {}, 0)


def test_a_row_that_is_missing_is_open_and_flagged() -> None:
    assert row(rows_passed=9) == ({}, {"ledger": 1}, 1)


def test_a_row_too_many_is_open_on_either_side_of_the_committed_offset() -> None:
    assert row(rows_passed=11) == ({}, {"surplus": 1}, 1)
    assert row(rows_ahead=1) == ({}, {"surplus": 1}, 1)


def test_one_more_row_ahead_hides_no_missing_one_below() -> None:
    assert row(kafka=11, ahead=1, rows_passed=9, rows_ahead=1, traced=11)[1] == {"ledger": 1}


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        ("found", {"found": {"passed": 1}}),
        ("found", {"found": {"removed": 1}}),
        ("elsewhere", {"elsewhere": 1}),
        ("replaced", {"replaced": 1}),
    ],
)
def test_a_missing_row_is_explained_once_by_its_cause(cause: str, changes: dict[str, Any]) -> None:
    explained, open_, unexplained = row(rows_passed=9, **changes)
    assert explained["ledger"] == {cause: 1}
    assert (open_, unexplained) == ({}, 0)
    assert row(rows_passed=8, **changes)[1] == {"ledger": 1}, "it explains one, not two"


def test_a_finding_of_another_kind_explains_no_missing_row() -> None:
    assert row(rows_passed=9, found={"silent": 1})[2] == 1


def test_dead_letters_are_no_part_of_the_ledgers_sum() -> None:
    assert row(kafka=12, dead=2) == ({}, {}, 0)


def test_what_waits_is_in_no_trace_either() -> None:
    explained, _, unexplained = row(kafka=13, ahead=3, rows_ahead=1, traced=11, unseen=2)
    assert explained == {"trace": {"waiting": 2}}
    assert unexplained == 0


def test_a_lane_without_a_ledger_is_judged_by_its_trace() -> None:
    lacking: dict[str, Any] = {"rows_passed": 0, "has_ledger": False}
    assert row(**lacking)[0] == {"ledger": {"no_ledger": 10}}
    assert row(**lacking, traced=9, unseen=1)[1] == {"trace": 1}


def test_untraced_deliveries_are_explained_by_policy_and_fresh_rows() -> None:
    assert row(traced=6, quiet=4)[0] == {"trace": {"quiet": 4}}
    assert row(traced=9, unseen=1, fresh=1)[0] == {"trace": {"fresh": 1}}
    assert row(traced=9, unseen=1)[1] == {"trace": 1}


def test_a_lifes_lost_events_are_spent_once_over_all_hours() -> None:
    hours = [
        HourCounts("sms.notice", HOUR + number * HOUR_MS, **WHOLE | {"traced": 8, "unseen": 2})
        for number in (1, 0)
    ]
    first, second = balanced(hours, [Life(HOUR, HOUR + 2 * HOUR_MS, 3, killed=False)])
    assert first.counts["explained"] == {"trace": {"gap": 2}}
    assert second.counts["explained"] == {"trace": {"gap": 1}}
    assert (first.unexplained, second.unexplained) == (0, 1)


def test_a_life_of_another_time_explains_nothing() -> None:
    assert row([life(5, at=HOUR - 2 * HOUR_MS)], traced=9, unseen=1)[2] == 1
    assert row([life(5, at=HOUR + 3 * HOUR_MS)], traced=9, unseen=1)[2] == 1


def test_a_killed_life_may_have_lost_any_number() -> None:
    assert row([life(1, killed=True)], traced=5, unseen=5)[0] == {"trace": {"gap": 1, "killed": 4}}
    assert row([life(1, killed=False)], traced=5, unseen=5)[1] == {"trace": 4}


def test_receipts_are_due_or_on_record_or_flagged() -> None:
    sent: dict[str, Any] = {"sent": 10, "receipts": 6, "due": 1, "silent": 3}
    explained, open_, unexplained = row(**sent, found={"silent": 2})
    assert explained == {"receipts": {"due": 1, "found": 2}}
    assert (open_, unexplained) == ({"receipts": 1}, 1)


# ---- which hours are looked at ---------------------------------------------------------------

LAG = {"sms.notice": 5 * HOUR_MS}
NOW = HOUR + 8 * HOUR_MS
DAY = 24 * HOUR_MS


def looked(until: int, **counts: Any) -> bool:
    """Whether HOUR is looked at again at NOW, its audit having been made at `until`."""
    unexplained = counts.pop("unexplained", 0)
    audit = Audit(HOUR, "sms.notice", {"until": until, **counts}, unexplained)
    return HOUR in open_hours([audit], NOW, DAY, LAG)


def test_every_hour_of_the_window_without_an_audit_is_looked_at() -> None:
    hours = open_hours([], NOW + 5, DAY, LAG)
    assert len(list(hours)) == 24
    assert max(hours) == NOW
    assert HOUR in hours


def test_an_hour_that_agrees_is_looked_at_no_more_once_it_is_over() -> None:
    assert looked(HOUR + HOUR_MS // 2)
    assert looked(HOUR + 2 * HOUR_MS - 1)
    assert not looked(HOUR + 2 * HOUR_MS)


def test_an_hour_with_something_open_is_looked_at_again() -> None:
    later = HOUR + 3 * HOUR_MS
    assert looked(later, unexplained=1)
    assert looked(later, waiting=1)
    assert not looked(later, waiting=0)


def test_due_receipts_are_looked_at_once_more_when_they_are_late() -> None:
    due = {"explained": {"receipts": {"due": 1}}}
    assert looked(HOUR + 3 * HOUR_MS, **due)
    assert not looked(HOUR + 7 * HOUR_MS, **due), "they were late at the last audit already"
    early = Audit(HOUR, "sms.notice", {"until": HOUR + 3 * HOUR_MS, **due}, 0)
    assert HOUR not in open_hours([early], HOUR + 4 * HOUR_MS, DAY, LAG)
