"""Calls under way that must not be finished any more (`channels.channel.Call.withdrawn`).

Used by a live lane (dispatcher/pipeline/lanes.py) and by recovery (recovery/retry/pool.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from channels.http_client.failures import LEASE_LAPSED
from message.outcomes import AnyOutcome
from message.states import Event

TooLate = tuple[Event, str]
"""What a delivery ends with that must not be sent any more, and the reason."""


class Called(Protocol):
    """What carries one delivery of the call: a lane's Work, recovery's Resend."""

    outcome: AnyOutcome | None
    event: Event | None
    reason: str | None


def why_withdrawn(found: Iterable[TooLate | None], *, lapsed: Callable[[], bool]) -> str:
    """Returns why a call must not be finished any more; empty: it may. `found` says of each of its
    deliveries whether it is too late, `lapsed` whether the lease that it was made under is over; that is
    asked last, since a thread may sleep between the questions."""
    late = next((late for late in found if late is not None), None)
    if late is not None:
        return late[1]
    return LEASE_LAPSED if lapsed() else ""


def take_back(one: Called, late: TooLate | None) -> None:
    """Ends one whose call was withdrawn with what it is too late for; None: its outcome stands."""
    if late is not None:
        one.outcome, (one.event, one.reason) = None, late
