"""What an outcome means for the ledger row: pure functions from outcome and policy to a settlement."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from dispatcher.work import Work
from idempotency.ledger import Settlement
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event
from policy.schema import LanePolicy, RetryPolicy

MAX_RETRY_AFTER_MS: Final = 3_600_000
"""A provider's wish is kept to, but not beyond an hour: past that somebody mistyped a unit."""
ATTEMPTS_SPENT: Final = "attempts_spent"
HORIZON_OVER: Final = "horizon_over"

Luck = Callable[[], float]
"""Draws from [0, 1)."""


def settlement_of(work: Work, policy: LanePolicy, luck: Luck = random.random) -> Settlement | None:
    """How the work ends in the ledger; None for what never was claimed, or is there already."""
    if work.outcome is not None:
        return after_call(work.delivery, work.outcome, work.answered_at, policy, luck)
    if work.event is not None:
        return Settlement(work.delivery, work.event, work.reason)
    return None


def backoff_ms(retry: RetryPolicy, attempt: int, luck: float) -> int:
    """The wait after the `attempt`-th call, from 1: `base_ms` times `factor` for each one before, at
    most `cap_ms`; of it the share `jitter` shrinks by chance (`luck` from [0, 1))."""
    steps = min(max(attempt, 1) - 1, _STEPS)
    wait = min(retry.base_ms * retry.factor**steps, retry.cap_ms)
    return max(1, int(wait * (1 - retry.jitter * luck)))


_STEPS: Final = 100
"""Past so many the cap holds for any factor worth its name, and floats still do."""


def after_call(
    delivery: Delivery,
    outcome: AnyOutcome,
    answered_at: int,
    policy: LanePolicy,
    luck: Luck = random.random,
) -> Settlement:
    """What an outcome means; `answered_at` is when it came, epoch milliseconds."""
    match outcome:
        case Accepted(provider_id=provider_id):
            return Settlement(delivery, Event.ACCEPTED, provider_id=provider_id)
        case Rejected(code=code):
            return Settlement(delivery, Event.REJECTED, code)
        case NotSent() as told:
            return _not_sent(delivery, told, answered_at, policy.retry, luck)
        case Unknown(code=code):
            return Settlement(delivery, Event.UNKNOWN, code)


def _not_sent(
    delivery: Delivery, outcome: NotSent, answered_at: int, retry: RetryPolicy, luck: Luck
) -> Settlement:
    """Tried again later while attempts and horizon last; never later than its TTL, where it ends."""
    code = outcome.code
    if delivery.attempt >= retry.attempts:
        return Settlement(delivery, Event.BUDGET_SPENT, f"{ATTEMPTS_SPENT}:{code}")
    delay = retry_delay_ms(outcome, retry, delivery.attempt, luck)
    at = answered_at + delay
    if at >= delivery.notification.created_at + retry.horizon_ms:
        return Settlement(delivery, Event.BUDGET_SPENT, f"{HORIZON_OVER}:{code}")
    left = max(delivery.expires_at - answered_at, 0)
    return Settlement(delivery, Event.NOT_SENT, code, delay_ms=min(delay, left))


def retry_delay_ms(outcome: NotSent, retry: RetryPolicy, attempt: int, luck: Luck) -> int:
    """The provider's wish, within bounds; without one the lane's own back-off."""
    if outcome.retry_after_ms is not None:
        return min(max(outcome.retry_after_ms, 0), MAX_RETRY_AFTER_MS)
    return backoff_ms(retry, attempt, luck())
