"""What an outcome means for the ledger row: pure functions from outcome and policy to a settlement.

The seam for recovery: retry budgets, back-off and failover change only what is returned here.
"""

from __future__ import annotations

from dispatcher.work import Work
from idempotency.ledger import Settlement
from message.outcomes import Accepted, NotSent, Rejected, Unknown
from message.states import Event
from policy.schema import LanePolicy

MAX_RETRY_AFTER_MS = 3_600_000
"""A provider's wish is kept to, but not beyond an hour: past that somebody mistyped a unit."""


def settlement_of(work: Work, policy: LanePolicy) -> Settlement | None:
    """How the work ends in the ledger; None for what never was claimed, or is there already."""
    if work.outcome is not None:
        return _after_call(work, policy)
    if work.event is not None:
        return Settlement(work.delivery, work.event, work.reason)
    return None


def _after_call(work: Work, policy: LanePolicy) -> Settlement:
    delivery = work.delivery
    match work.outcome:
        case Accepted(provider_id=provider_id):
            return Settlement(delivery, Event.ACCEPTED, provider_id=provider_id)
        case Rejected(code=code):
            return Settlement(delivery, Event.REJECTED, code)
        case NotSent(code=code, retry_after_ms=wish):
            delay = policy.retry_ms if wish is None else min(wish, MAX_RETRY_AFTER_MS)
            return Settlement(delivery, Event.NOT_SENT, code, delay_ms=delay)
        case Unknown(code=code):
            return Settlement(delivery, Event.UNKNOWN, code)
        case other:
            return Settlement(delivery, Event.UNKNOWN, f"no outcome: {other!r}")
