"""The state machine: complete, free of moves nobody drew, and the same in docs/lookback.md."""

import re
from pathlib import Path

import pytest

from lookback.states import (
    DECIDED,
    OPEN_STATES,
    TERMINAL,
    TRANSITIONS,
    NoTransition,
    TxEvent,
    TxState,
    next_state,
)

PAGE = Path(__file__).parents[2] / "docs" / "lookback.md"
PERSON = {TxEvent.OPERATOR_COMMIT, TxEvent.OPERATOR_ROLLBACK}


def test_every_state_can_be_reached() -> None:
    reached: set[TxState | None] = {None}
    while fresh := {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached:
        reached |= fresh
    assert reached - {None} == set(TxState)


def test_every_event_moves_something() -> None:
    assert {event for _, event in TRANSITIONS} == set(TxEvent)


def test_nothing_leaves_a_terminal_state() -> None:
    assert not [state for state, _ in TRANSITIONS if state in TERMINAL]


def test_every_open_state_has_a_way_to_an_end() -> None:
    for state in OPEN_STATES:
        reached = {state}
        while fresh := {to for (s, _), to in TRANSITIONS.items() if s in reached} - reached:
            reached |= fresh
        assert reached & TERMINAL


def test_only_unresolved_waits_for_a_person() -> None:
    assert {state for state, event in TRANSITIONS if event in PERSON} == {TxState.UNRESOLVED}


def test_forwarded_comes_from_committed_alone() -> None:
    sources = {state for (state, _), to in TRANSITIONS.items() if to is TxState.FORWARDED}
    assert sources == {TxState.COMMITTED}


def test_no_decision_is_left_by_a_decision() -> None:
    decisions = {TxEvent.COMMIT, TxEvent.ROLLBACK, TxEvent.CHECK_COMMIT, TxEvent.CHECK_ROLLBACK}
    assert not [1 for state, event in TRANSITIONS if state in DECIDED and event in decisions]


def test_a_move_that_nobody_drew_is_refused() -> None:
    with pytest.raises(NoTransition, match="FORWARDED has no move for 'rollback'"):
        next_state(TxState.FORWARDED, TxEvent.ROLLBACK)


def test_the_document_has_the_same_moves() -> None:
    rows = re.findall(r"^\| `?([A-Z_]+|∅)`? \| ([^|]+) \| `([A-Z_]+)` \|", PAGE.read_text(), re.M)
    drawn = {(None if a == "∅" else TxState(a), TxEvent(b.strip())): TxState(c) for a, b, c in rows}
    assert drawn == TRANSITIONS
