"""The states of a look-back transaction and the only moves between them.

`TRANSITIONS` is the state machine, once: every write asks it, and docs/lookback.md is compared with it
(`tests/lookback/test_states.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TxState(StrEnum):
    """States of a transaction, spelt as in the table."""

    PREPARED = "PREPARED"
    CHECKING = "CHECKING"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    FORWARDED = "FORWARDED"
    EARLY_COMMIT = "EARLY_COMMIT"
    EARLY_ROLLBACK = "EARLY_ROLLBACK"
    UNRESOLVED = "UNRESOLVED"


class TxEvent(StrEnum):
    """Events that move a transaction from one state to the next."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    GRACE_OVER = "grace over, no body"
    DUE = "due"
    CHECK_COMMIT = "check says COMMIT"
    CHECK_ROLLBACK = "check says ROLLBACK"
    CHECK_UNKNOWN = "UNKNOWN, timeout, 5xx"
    SPENT = "n ≥ max or age ≥ deadline"
    DAMAGED = "the body is not the prepared one"
    ACKNOWLEDGED = "broker acknowledged"
    OPERATOR_COMMIT = "operator: commit"
    OPERATOR_ROLLBACK = "operator: rollback"


_S, _E = TxState, TxEvent

TRANSITIONS: Final[dict[tuple[TxState | None, TxEvent], TxState]] = {
    (None, _E.PREPARE): _S.PREPARED,
    (None, _E.COMMIT): _S.EARLY_COMMIT,
    (None, _E.ROLLBACK): _S.EARLY_ROLLBACK,
    (_S.EARLY_COMMIT, _E.PREPARE): _S.COMMITTED,
    (_S.EARLY_ROLLBACK, _E.PREPARE): _S.ROLLED_BACK,
    (_S.EARLY_COMMIT, _E.GRACE_OVER): _S.UNRESOLVED,
    # A prepare that never reached Kafka, and the rollback that followed it: there is nothing to send.
    (_S.EARLY_ROLLBACK, _E.GRACE_OVER): _S.ROLLED_BACK,
    (_S.PREPARED, _E.COMMIT): _S.COMMITTED,
    (_S.PREPARED, _E.ROLLBACK): _S.ROLLED_BACK,
    (_S.PREPARED, _E.DUE): _S.CHECKING,
    (_S.PREPARED, _E.SPENT): _S.UNRESOLVED,
    # The lease of a process that died during its check is over: it asks again, and no attempt is counted.
    (_S.CHECKING, _E.DUE): _S.CHECKING,
    # The business decides while a check runs: its decision wins, and the check's answer comes too late.
    (_S.CHECKING, _E.COMMIT): _S.COMMITTED,
    (_S.CHECKING, _E.ROLLBACK): _S.ROLLED_BACK,
    (_S.CHECKING, _E.CHECK_COMMIT): _S.COMMITTED,
    (_S.CHECKING, _E.CHECK_ROLLBACK): _S.ROLLED_BACK,
    (_S.CHECKING, _E.CHECK_UNKNOWN): _S.PREPARED,
    (_S.CHECKING, _E.SPENT): _S.UNRESOLVED,
    (_S.COMMITTED, _E.ACKNOWLEDGED): _S.FORWARDED,
    # The stored bytes do not have the hash of the prepared ones: they are never sent.
    (_S.COMMITTED, _E.DAMAGED): _S.UNRESOLVED,
    (_S.UNRESOLVED, _E.COMMIT): _S.COMMITTED,
    (_S.UNRESOLVED, _E.ROLLBACK): _S.ROLLED_BACK,
    # The body of an early commit comes after all.
    (_S.UNRESOLVED, _E.PREPARE): _S.COMMITTED,
    (_S.UNRESOLVED, _E.OPERATOR_COMMIT): _S.COMMITTED,
    (_S.UNRESOLVED, _E.OPERATOR_ROLLBACK): _S.ROLLED_BACK,
}

TERMINAL: Final = frozenset({_S.FORWARDED, _S.ROLLED_BACK})
"""States in which nothing more happens. Only days of these alone are archived."""

OPEN_STATES: Final = frozenset(TxState) - TERMINAL
"""States in which the service, or a person, still owes the transaction something."""

DECIDED: Final = frozenset({_S.COMMITTED, _S.FORWARDED, _S.ROLLED_BACK})
"""States after a decision that is written once."""


class NoTransition(ValueError):
    """A move that the state machine does not have."""


def next_state(state: TxState | None, event: TxEvent) -> TxState:
    """Returns the state after `event` in `state`. Raises NoTransition where there is none."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise NoTransition(f"{state or '∅'} has no move for {event.value!r}") from None


def may(state: TxState | None, event: TxEvent) -> bool:
    """Returns whether `event` moves a transaction in `state`."""
    return (state, event) in TRANSITIONS
