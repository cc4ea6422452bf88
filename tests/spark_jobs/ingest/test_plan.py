"""Plans: which offsets a step reads, and which are gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from spark_jobs.ingest.plan import (
    DISPATCH,
    REMOVED,
    TOPIC_GONE,
    TRACE,
    Hole,
    IngestPlan,
    Known,
    make_plan,
    revised,
)
from spark_jobs.positions import PartitionPosition, Positions

LANE, TRACED = "h.dispatch.sms.notice", "h.trace"


def at(time: int, *logs: tuple[str, str, int, int, int]) -> Positions:
    """Positions with (topic, id, partition, first, end) each."""
    lanes = {LANE: "sms.notice"}
    return Positions(
        time,
        [
            PartitionPosition(topic, name, lanes.get(topic), partition, None, first, end)
            for topic, name, partition, first, end in logs
        ],
    )


def planned(known: list[Known], positions: Positions, **changes: Any) -> IngestPlan:
    return make_plan(known, positions, "h", **{"version": 7, "run": 3, **changes})


def ranges(plan: IngestPlan) -> list[tuple[str, int, int, int]]:
    return [(one.topic, one.partition, one.first, one.next) for one in plan.ranges]


def test_a_new_partition_is_read_from_its_start() -> None:
    plan = planned(
        [], at(50, (LANE, "a", 0, 0, 5), (TRACED, "t", 0, 0, 2), ("other", "o", 0, 0, 9))
    )
    assert ranges(plan) == [(LANE, 0, 0, 5), (TRACED, 0, 0, 2)]
    assert [one.kind for one in plan.ranges] == [DISPATCH, TRACE]
    assert [one.lane for one in plan.ranges] == ["sms.notice", None]
    assert plan.holes == []
    assert (plan.version, plan.run, plan.taken_at) == (7, 3, 50)


def test_the_next_step_begins_where_the_last_one_ended() -> None:
    first = planned([], at(50, (LANE, "a", 0, 0, 5)))
    plan = planned(first.known, at(90, (LANE, "a", 0, 2, 8), (LANE, "a", 1, 0, 1)))
    assert ranges(plan) == [(LANE, 0, 5, 8), (LANE, 1, 0, 1)]
    assert [one.since for one in plan.ranges] == [50, 0]
    assert plan.holes == []
    assert planned(plan.known, at(95, (LANE, "a", 0, 8, 8), (LANE, "a", 1, 0, 1))).is_empty


def test_what_was_removed_unread_is_a_hole() -> None:
    first = planned([], at(50, (LANE, "a", 0, 0, 5)))
    plan = planned(first.known, at(90, (LANE, "a", 0, 9, 12)))
    assert ranges(plan) == [(LANE, 0, 9, 12)]
    assert plan.holes == [Hole(LANE, "a", "sms.notice", 0, 5, 9, 50, 90, 90, REMOVED)]
    assert planned(plan.known, at(99, (LANE, "a", 0, 9, 12))).is_empty


def test_what_was_removed_before_the_first_ingest_is_a_hole_without_a_beginning() -> None:
    (hole,) = planned([], at(50, (LANE, "a", 0, 4, 5))).holes
    assert (hole.first, hole.next, hole.after, hole.before) == (0, 4, None, 50)


@pytest.mark.parametrize("end", [0, 9])
def test_a_topic_made_anew_is_another_one(end: int) -> None:
    first = planned([], at(50, (LANE, "a", 0, 0, 5)))
    plan = planned(first.known, at(90, (LANE, "b", 0, 0, end)))
    assert ranges(plan) == ([(LANE, 0, 0, 9)] if end else [])
    assert plan.holes == [Hole(LANE, "a", "sms.notice", 0, 5, None, 50, 90, 90, TOPIC_GONE)]
    assert planned(plan.known, at(99, (LANE, "b", 0, 0, end))).is_empty


def test_a_topic_that_is_gone_is_told_once() -> None:
    first = planned([], at(50, (LANE, "a", 0, 0, 5)))
    plan = planned(first.known, at(90))
    assert [(one.reason, one.first, one.next) for one in plan.holes] == [(TOPIC_GONE, 5, None)]
    assert planned(plan.known, at(99)).is_empty


def test_a_log_that_is_shorter_than_before_is_another_one() -> None:
    first = planned([], at(50, (LANE, "", 0, 0, 5)))
    plan = planned(first.known, at(90, (LANE, "", 0, 0, 3)))
    assert ranges(plan) == [(LANE, 0, 0, 3)]
    assert [(one.reason, one.first, one.next) for one in plan.holes] == [(TOPIC_GONE, 5, None)]


def test_a_backlog_is_read_in_steps_of_the_limit() -> None:
    positions = at(50, (LANE, "a", 0, 0, 100), (LANE, "a", 1, 0, 10), (TRACED, "t", 0, 0, 3))
    limits = {DISPATCH: 11, TRACE: 5, "dead": 5}
    known: list[Known] = []
    seen: list[tuple[str, int, int, int]] = []
    steps = 0
    while not (plan := planned(known, positions, limits=limits)).is_empty:
        assert sum(n - f for t, _, f, n in ranges(plan) if t == LANE) <= 12
        seen += ranges(plan)
        known, steps = plan.known, steps + 1
    assert 10 <= steps <= 12
    for topic, partition, end in ((LANE, 0, 100), (LANE, 1, 10), (TRACED, 0, 3)):
        mine = [(f, n) for t, p, f, n in seen if (t, p) == (topic, partition)]
        assert [offset for f, n in mine for offset in range(f, n)] == list(range(end))
    assert {one.since for one in known} == {50}


def test_a_backlogs_rest_is_not_called_newer_than_it_is() -> None:
    first = planned([], at(50, (LANE, "a", 0, 0, 4)))
    limits = {DISPATCH: 3, TRACE: 1, "dead": 1}
    second = planned(first.known, at(90, (LANE, "a", 0, 0, 10)), limits=limits)
    third = planned(second.known, at(99, (LANE, "a", 0, 0, 10)), limits=limits)
    assert [(one.first, one.next, one.since) for one in third.ranges] == [(7, 10, 50)]


def test_a_plan_is_revised_where_records_went() -> None:
    plan = planned([], at(50, (LANE, "a", 0, 0, 9), (LANE, "a", 1, 0, 4), (TRACED, "t", 0, 0, 2)))
    same = at(60, (LANE, "a", 0, 0, 9), (LANE, "a", 1, 0, 4), (TRACED, "t", 0, 0, 2))
    assert revised(plan, same, ()) is None
    now = at(60, (LANE, "a", 0, 3, 20), (LANE, "b", 1, 0, 7), (TRACED, "t", 0, 2, 2))
    changed = revised(plan, now, [TRACE])
    assert changed is not None
    assert ranges(changed) == [(LANE, 0, 3, 9), (TRACED, 0, 0, 2)]
    assert [(one.partition, one.first, one.next, one.reason) for one in changed.holes] == [
        (0, 0, 3, REMOVED),
        (1, 0, 4, TOPIC_GONE),
    ]
    assert (changed.version, changed.revision) == (7, 1)
    assert changed.known == plan.known


def test_a_plan_survives_its_file() -> None:
    plan = planned([], at(50, (LANE, "a", 0, 4, 9)))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=IngestPlan) == plan
