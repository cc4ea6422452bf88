"""Ends of deliveries in a process that calls providers."""

from __future__ import annotations

from typing import Final

import msgspec

from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event

LANE_PAUSED: Final = "lane_paused"
"""Reason of a delivery that waited in a lane's queue when the lane was paused."""


class NotStarted(msgspec.Struct, frozen=True, gc=False):
    """No call was made, or the call that was made must not count."""

    event: Event
    """The delivery's move in the ledger."""
    reason: str
    delay_ms: int = 0
    """Milliseconds for which the delivery waits then."""


Ending = AnyOutcome | NotStarted
"""An end that becomes a settlement, by `after_call` or by its own event."""
_OUTCOMES = (Accepted, Rejected, NotSent, Unknown)


def outcome_of(end: object) -> AnyOutcome | None:
    """Returns the provider's outcome; None if the end is another one, or open."""
    return end if isinstance(end, _OUTCOMES) else None
