"""The states of a delivery and the only moves between them.

`TRANSITIONS` is the state machine, once: the ledger asks it before every write, and the diagram in
docs/ledger.md is generated from it (see `tests/message/test_states.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """States of a delivery, spelt as in the ledger views."""

    IN_FLIGHT = "IN_FLIGHT"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    UNDELIVERED = "UNDELIVERED"
    REJECTED = "REJECTED"
    RETRY = "RETRY"
    UNKNOWN = "UNKNOWN"
    PARKED = "PARKED"
    EXPIRED = "EXPIRED"
    DROPPED = "DROPPED"


class Event(StrEnum):
    """Events that move a delivery from one state to the next."""

    CLAIM = "claim"
    TTL_AT_INTAKE = "past TTL at intake"
    DROP = "a gate or recall drops it"
    PARK = "its template or account must be mended"
    HOLD = "quiet hours hold it"
    BEHIND = "an earlier one of its key is open"
    FOUND = "found lost"
    ACCEPTED = "Accepted"
    QUEUED = "Accepted as a task"
    REJECTED = "Rejected"
    REFUSED = "its adapter refuses it"
    NOT_SENT = "NotSent"
    UNKNOWN = "Unknown"
    OWNER_DEAD = "owner dead"
    GIVEN_BACK = "given back unstarted"
    SHUT = "its account was shut, or its lane paused, before the call"
    TAKE_OVER = "claimed again"
    DUE = "due"
    BUDGET_SPENT = "budget spent"
    TTL = "TTL"
    RECALL = "recall"
    RESOLVED_SENT = "resolver: it was sent"
    RESOLVED_NOT_SENT = "resolver: it was not"
    RESOLVED_REFUSED = "resolver: it was refused for good"
    REPLAY = "in the provider's dedup window"
    RESEND_UNPROVEN = "no proof, lane is at_least_once, TTL left"
    PARK_UNPROVEN = "no proof, lane is at_most_once"
    OPERATOR_RETRY = "operator: retry"
    OPERATOR_SENT = "operator saw it arrive"
    OPERATOR_NOT_SENT = "operator: it did not arrive"
    OPERATOR_RISK = "operator: sent again, maybe a second copy"
    OPERATOR_DISCARD = "operator: discard"
    RECEIPT_DELIVERED = "receipt: delivered"
    RECEIPT_UNDELIVERED = "receipt: undelivered"


_S, _E = State, Event

TRANSITIONS: Final[dict[tuple[State | None, Event], State]] = {
    (None, _E.CLAIM): _S.IN_FLIGHT,
    (None, _E.TTL_AT_INTAKE): _S.EXPIRED,
    (None, _E.DROP): _S.DROPPED,
    # A person can mend the cause and have the same delivery sent (message/reasons.py).
    (None, _E.PARK): _S.PARKED,
    (None, _E.HOLD): _S.RETRY,
    (None, _E.BEHIND): _S.RETRY,
    # A Spark job proved that no worker will ever read it (docs/spark.md).
    (None, _E.FOUND): _S.RETRY,
    (_S.IN_FLIGHT, _E.ACCEPTED): _S.SENT,
    # The provider took a task, and names the receivers reached only when asked (reason `queued`).
    (_S.IN_FLIGHT, _E.QUEUED): _S.UNKNOWN,
    (_S.IN_FLIGHT, _E.REJECTED): _S.REJECTED,
    # No account's adapter can ever send it: no call, no attempt.
    (_S.IN_FLIGHT, _E.REFUSED): _S.REJECTED,
    (_S.IN_FLIGHT, _E.NOT_SENT): _S.RETRY,
    (_S.IN_FLIGHT, _E.UNKNOWN): _S.UNKNOWN,
    (_S.IN_FLIGHT, _E.OWNER_DEAD): _S.UNKNOWN,
    # Waited in the lane's queue until its time was over: claimed, never sent.
    (_S.IN_FLIGHT, _E.TTL): _S.EXPIRED,
    # The worker stops before it began the call: no attempt was made. The record's offset does not pass:
    # its next reader takes the row over at once instead of waiting for recovery.
    (_S.IN_FLIGHT, _E.GIVEN_BACK): _S.RETRY,
    # Its account's breaker opened, its provider asked for a pause, or a person paused the lane, while it
    # waited in the lane's queue: no attempt was made. Recovery sends it when an account may send.
    (_S.IN_FLIGHT, _E.SHUT): _S.RETRY,
    (_S.RETRY, _E.TAKE_OVER): _S.IN_FLIGHT,
    # A definite non-send whose attempts are used up has nothing to wait for.
    (_S.IN_FLIGHT, _E.BUDGET_SPENT): _S.PARKED,
    # Recovery took it to send it, and its template or account was still wrong, or its horizon was over: no
    # call, no attempt.
    (_S.IN_FLIGHT, _E.PARK): _S.PARKED,
    (_S.RETRY, _E.DUE): _S.IN_FLIGHT,
    (_S.RETRY, _E.BUDGET_SPENT): _S.PARKED,
    (_S.RETRY, _E.TTL): _S.EXPIRED,
    (_S.RETRY, _E.RECALL): _S.DROPPED,
    # A receipt names the call in doubt before it was made again (docs/decisions/330).
    (_S.RETRY, _E.RESOLVED_SENT): _S.SENT,
    (_S.UNKNOWN, _E.RESOLVED_SENT): _S.SENT,
    (_S.UNKNOWN, _E.RESOLVED_NOT_SENT): _S.RETRY,
    (_S.UNKNOWN, _E.RESOLVED_REFUSED): _S.REJECTED,
    # The same call once more, while the provider surely drops a repeat.
    (_S.UNKNOWN, _E.REPLAY): _S.RETRY,
    (_S.UNKNOWN, _E.RESEND_UNPROVEN): _S.RETRY,
    (_S.UNKNOWN, _E.PARK_UNPROVEN): _S.PARKED,
    # Past its TTL with no proof: resending is out, so a person decides.
    (_S.UNKNOWN, _E.TTL): _S.PARKED,
    (_S.PARKED, _E.OPERATOR_RETRY): _S.RETRY,
    (_S.REJECTED, _E.OPERATOR_RETRY): _S.RETRY,
    (_S.EXPIRED, _E.OPERATOR_RETRY): _S.RETRY,
    # Replaces the automatic one that was pending.
    (_S.RETRY, _E.OPERATOR_RETRY): _S.RETRY,
    (_S.PARKED, _E.OPERATOR_SENT): _S.SENT,
    # A person asked the provider, or the receiver, where no resolver can.
    (_S.UNKNOWN, _E.OPERATOR_SENT): _S.SENT,
    (_S.UNKNOWN, _E.OPERATOR_NOT_SENT): _S.RETRY,
    (_S.PARKED, _E.OPERATOR_NOT_SENT): _S.RETRY,
    (_S.UNKNOWN, _E.OPERATOR_RISK): _S.RETRY,
    # Only where something may still happen: rejected and expired deliveries have ended with their reason.
    (_S.PARKED, _E.OPERATOR_DISCARD): _S.DROPPED,
    (_S.RETRY, _E.OPERATOR_DISCARD): _S.DROPPED,
    (_S.UNKNOWN, _E.OPERATOR_DISCARD): _S.DROPPED,
    (_S.SENT, _E.RECEIPT_DELIVERED): _S.DELIVERED,
    (_S.SENT, _E.RECEIPT_UNDELIVERED): _S.UNDELIVERED,
}

OPEN: Final = frozenset({_S.IN_FLIGHT, _S.RETRY, _S.UNKNOWN})
"""States in which the platform itself still owes the delivery something."""

SETTLED: Final = frozenset(State) - OPEN
"""States in which nothing more happens unless a person, or a receipt, says so."""


class UnknownState(ValueError):
    """This version does not know a row's state: a newer one wrote it, or somebody by hand."""


def state_of(text: str, key: str) -> State:
    """Returns the state of the row of that delivery key. Raises UnknownState."""
    try:
        return State(text)
    except ValueError:
        raise UnknownState(
            f"delivery {key} is in a state that this version does not know ({text[:20]!r}); "
            "upgrade this program, or mend the row"
        ) from None


class IllegalTransition(ValueError):
    """A move the state machine does not have."""


def after(state: State | None, event: Event) -> State:
    """Returns the state after `event` in `state`. Raises IllegalTransition where there is none."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{state or '∅'} has no move for {event.value!r}") from None


def sources(event: Event) -> frozenset[State]:
    """Returns the states from which `event` may move a delivery (∅ left out)."""
    return frozenset(state for state, e in TRANSITIONS if e is event and state is not None)
