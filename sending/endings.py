"""How a delivery ends in a process that may call its provider, where no provider's answer says so."""

from __future__ import annotations

import msgspec

from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event


class NotStarted(msgspec.Struct, frozen=True, gc=False):
    """No call was made, or the call that was made must not count."""

    event: Event
    """The delivery's move in the ledger."""
    reason: str
    delay_ms: int = 0
    """The time for which the delivery waits then."""


Ending = AnyOutcome | NotStarted
"""What `after_call` or the event itself turns into a settlement."""
_OUTCOMES = (Accepted, Rejected, NotSent, Unknown)


def outcome_of(end: object) -> AnyOutcome | None:
    """Returns the provider's outcome; None where the end is another one, or is open."""
    return end if isinstance(end, _OUTCOMES) else None
