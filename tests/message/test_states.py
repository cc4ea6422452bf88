"""The state machine: complete, and free of moves nobody drew."""

import itertools

import pytest

from message.states import (
    OPEN,
    SETTLED,
    TRANSITIONS,
    Event,
    IllegalTransition,
    State,
    after,
    sources,
)

RECEIPTS = {Event.RECEIPT_DELIVERED, Event.RECEIPT_UNDELIVERED}
PERSON = {
    Event.OPERATOR_RETRY,
    Event.OPERATOR_SENT,
    Event.OPERATOR_NOT_SENT,
    Event.OPERATOR_RISK,
    Event.OPERATOR_DISCARD,
}


def test_every_state_can_be_reached() -> None:
    reached: set[State | None] = {None}
    while fresh := {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached:
        reached |= fresh
    assert reached - {None} == set(State)


def test_every_event_moves_something() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_every_open_state_has_a_way_out_that_needs_no_person() -> None:
    for state in OPEN:
        ways = {event for s, event in TRANSITIONS if s is state}
        assert ways - PERSON - RECEIPTS


def test_from_a_settled_state_only_a_person_or_a_receipt_leads_on() -> None:
    for state, event in TRANSITIONS:
        if state in SETTLED:
            assert event in PERSON | RECEIPTS


def test_nothing_leaves_what_was_delivered() -> None:
    assert not [e for s, e in TRANSITIONS if s in (State.DELIVERED, State.UNDELIVERED)]


def test_unknown_is_resent_only_by_a_resolver_by_policy_or_by_a_persons_word() -> None:
    resends = {e for (s, e), to in TRANSITIONS.items() if s is State.UNKNOWN and to is State.RETRY}
    machine = {Event.RESOLVED_NOT_SENT, Event.REPLAY, Event.RESEND_UNPROVEN}
    assert resends == machine | {Event.OPERATOR_NOT_SENT, Event.OPERATOR_RISK}


def test_sent_is_entered_only_on_proof() -> None:
    proofs = {event for (_, event), to in TRANSITIONS.items() if to is State.SENT}
    assert proofs == {Event.ACCEPTED, Event.RESOLVED_SENT, Event.OPERATOR_SENT}


def test_every_move_is_either_in_the_table_or_refused() -> None:
    for state, event in itertools.product([None, *State], Event):
        if (state, event) in TRANSITIONS:
            assert after(state, event) is TRANSITIONS[state, event]
        else:
            with pytest.raises(IllegalTransition):
                after(state, event)


def test_the_sources_of_an_event_are_those_of_the_table() -> None:
    waiting = {State.PARKED, State.REJECTED, State.EXPIRED, State.RETRY}
    assert sources(Event.OPERATOR_RETRY) == waiting
    assert sources(Event.OPERATOR_DISCARD) == {State.PARKED, State.RETRY, State.UNKNOWN}
    assert sources(Event.CLAIM) == frozenset()
