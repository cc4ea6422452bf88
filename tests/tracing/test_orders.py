"""The table of legal orders: whole, the same as docs/trace.md's, and strict."""

import re
from pathlib import Path
from typing import Any

import pytest

from tracing.events import Stage, TraceEvent
from tracing.orders import ASIDE, FOLLOWS, violations
from tracing.record_headers import DROPPED, END, FIRST, LIFE

PAGE = (Path(__file__).parents[2] / "docs" / "trace.md").read_text("utf-8")
S = Stage


def events(*stages: Stage, attempt: int = 1, **fields: Any) -> list[TraceEvent]:
    common: dict[str, Any] = {"message_id": "m", "delivery_key": "k", "attempt": attempt, **fields}
    return [TraceEvent(at=at, stage=stage, **common) for at, stage in enumerate(stages)]


@pytest.mark.parametrize(
    "way",
    [
        [S.SETTLED, S.RECEIPT],
        [S.TAKEN, S.ATTEMPTED],
        [S.TAKEN, S.SETTLED, S.RECEIPT, S.RECEIPT_CONTRADICTED],
        [S.OWNER_DEAD, S.RESOLVED],
        [S.OWNER_DEAD, S.FENCED, S.RESOLVED],
        [S.OWNER_DEAD, S.RECEIPT],
        [S.PARKED, S.RESOLVED],
        [S.HELD, S.RECALL_ASKED, S.DROPPED],
        [S.FOUND, S.EXPIRED, S.RESOLVED],
        [S.ACCEPTED, S.SETTLED, S.DUPLICATE],
    ],
)
def test_a_usual_way_is_legal(way: list[Stage]) -> None:
    assert violations(events(*way)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (S.RECEIPT, S.TAKEN),
        (S.DROPPED, S.SETTLED),
        (S.DROPPED, S.TAKEN),
        (S.EXPIRED, S.SETTLED),
        (S.OWNER_DEAD, S.TAKEN),
        (S.RECALLED, S.SETTLED),
        (S.PARKED, S.SETTLED),
        (S.HELD, S.RECEIPT),
        (S.ATTEMPTED, S.RECEIPT),
    ],
)
def test_another_way_is_not(before: Stage, after: Stage) -> None:
    said = violations(events(before, after))
    assert said == [f"k, attempt 1: {after} may not follow {before}"]


def test_no_receipt_contradicts_a_delivery_without_one_or_an_outcome() -> None:
    said = violations(events(S.RECEIPT_CONTRADICTED))
    assert said == ["k, attempt 1: receipt_contradicted may not follow nothing"]


def test_each_attempt_and_each_delivery_is_judged_by_itself() -> None:
    first, second = events(S.DROPPED), events(S.SETTLED, attempt=2)
    assert violations([*first, *second, *events(S.SETTLED, delivery_key="other")]) == []


def test_the_order_of_arrival_and_doubled_events_change_nothing() -> None:
    way = events(S.TAKEN, S.SETTLED, S.RECEIPT)
    assert violations([*reversed(way), *way]) == []


def test_events_of_one_millisecond_are_in_the_order_of_their_stages() -> None:
    same = [event for way in ([S.SETTLED], [S.RECEIPT]) for event in events(*way)]
    assert violations(same) == violations(same[::-1]) == []


def test_every_stage_has_its_row() -> None:
    assert set(FOLLOWS) == {None, *Stage}
    for stage in set(Stage) - ASIDE:
        assert any(stage in after for after in FOLLOWS.values()), f"nothing leads to {stage}"
    assert not any(after & ASIDE for after in FOLLOWS.values())


def rows(heading: str) -> dict[str, str]:
    """The table under that head, first cell to second."""
    body = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    cells = [line.strip("| ").split(" | ") for line in body.splitlines()[2:]]
    return {one[0]: one[1] if len(one) > 1 else "" for one in cells}


def test_the_page_has_the_table_of_orders() -> None:
    told = {
        stage: {name for name in after.split(", ") if name}
        for stage, after in rows("stage | may be followed by").items()
    }
    assert told == {
        before.value if before else "(first)": {stage.value for stage in after}
        for before, after in FOLLOWS.items()
        if before not in ASIDE
    }
    aside = re.search(
        r"([\w, ]+?,\s[\w, ]+?) and (\w+) may come at any time", PAGE.replace("\n", " ")
    )
    assert aside is not None
    assert {*re.findall(r"\w+", aside[1]), aside[2]} == {stage.value for stage in ASIDE}


def test_the_page_has_every_stage_and_every_field() -> None:
    assert list(rows("stage | written by | when")) == [stage.value for stage in Stage]
    fields = {name for cell in rows("field | meaning") for name in re.findall(r"`(\w+)`", cell)}
    assert fields == set(TraceEvent.__struct_fields__)


def test_the_page_has_every_header() -> None:
    assert list(rows("header | value")) == [f"`{name}`" for name in (LIFE, FIRST, DROPPED, END)]
