"""A person's moves, as they reach the ledger without the rules of recovery/operator_rules.py."""

from __future__ import annotations

from typing import Any

from idempotency.recovery.contract import OPERATOR, Transition
from message.states import Event, State


def operator_retry(key: str, day: int, version: int, state: State, **fields: Any) -> Transition:
    """Returns the move of a person who wants it sent again now; it replaces a pending retry.

    `fields` are of Transition; give `expires_at` for an expired row. `RecoveryStore.move` checks the move.
    """
    return Transition(key, day, version, state, Event.OPERATOR_RETRY, OPERATOR, **fields)


def operator_sent(key: str, day: int, version: int) -> Transition:
    """Returns the move of a person who saw it arrive."""
    return Transition(key, day, version, State.PARKED, Event.OPERATOR_SENT, OPERATOR)
