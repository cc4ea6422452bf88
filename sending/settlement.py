"""Settlements: pure functions from a call's outcome and the policy to the move of the ledger row."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from channels.judging.retry_after import MAX_MS as MAX_PACED_MS
from idempotency.ledger import Settlement
from idempotency.recovery.contract import JOINT_REFUSAL, QUEUED
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown, is_paced
from message.states import Event
from policy.schema import LanePolicy, RetryPolicy
from sending.accounts.paces import LOGIN_MS

MAX_RETRY_AFTER_MS: Final = 3_600_000
"""Longest wait that a provider's answer can set; a longer one is likely a wrong unit. A refusal for pace
alone may set a longer one (MAX_PACED_MS): limits of a day last that long, and no attempt is lost."""
ATTEMPTS_SPENT: Final = "attempts_spent"
HORIZON_OVER: Final = "horizon_over"
PACED: Final = "paced"
"""Refused for pace alone until `patience_ends`."""

Luck = Callable[[], float]
"""Draws from [0, 1)."""


def backoff_ms(retry: RetryPolicy, attempt: int, luck: float) -> int:
    """Returns the wait after the `attempt`-th call, from 1: `base_ms` times `factor` for each one before,
    at most `cap_ms`. Up to the share `jitter` is taken off by chance (`luck` from [0, 1))."""
    steps = min(max(attempt, 1) - 1, _STEPS)
    wait = min(retry.base_ms * retry.factor**steps, retry.cap_ms)
    return max(1, int(wait * (1 - retry.jitter * luck)))


_STEPS: Final = 100
"""By then any sensible factor has reached the cap, and floats do not overflow."""


def after_call(
    delivery: Delivery,
    outcome: AnyOutcome,
    answered_at: int,
    policy: LanePolicy,
    luck: Luck = random.random,
) -> Settlement:
    """Returns the settlement of an outcome that came at `answered_at`, epoch milliseconds."""
    match outcome:
        case Accepted(provider_id=provider_id, queued=True):
            return Settlement(delivery, Event.QUEUED, QUEUED, provider_id=provider_id)
        case Accepted(provider_id=provider_id):
            return Settlement(delivery, Event.ACCEPTED, provider_id=provider_id)
        case Rejected(code=code, before_call=True):
            return Settlement(delivery, Event.REFUSED, code)
        case Rejected(code=code):
            return Settlement(delivery, Event.REJECTED, code)
        case NotSent() as refusal if is_paced(refusal):
            return _paced(delivery, refusal, answered_at, policy, luck)
        case NotSent() as refusal:
            return _not_sent(delivery, refusal, answered_at, policy.retry, luck)
        case Unknown(code=code):
            return Settlement(delivery, Event.UNKNOWN, code)


def _not_sent(
    delivery: Delivery, outcome: NotSent, answered_at: int, retry: RetryPolicy, luck: Luck
) -> Settlement:
    """Returns a retry while attempts and horizon last; never later than the TTL. A joint refusal leaves one
    more attempt: the delivery goes alone then, and a call of one is no joint one."""
    code = reason = outcome.code
    if delivery.spent >= retry.attempts:
        if not outcome.joint:
            return Settlement(delivery, Event.BUDGET_SPENT, f"{ATTEMPTS_SPENT}:{code}")
        reason = f"{JOINT_REFUSAL}:{code}"
    delay = retry_delay_ms(outcome, retry, delivery.waits, luck)
    if answered_at + delay >= horizon_ends(delivery, retry):
        return Settlement(delivery, Event.BUDGET_SPENT, f"{HORIZON_OVER}:{code}")
    left = max(delivery.expires_at - answered_at, 0)
    return Settlement(delivery, Event.NOT_SENT, reason, delay_ms=min(delay, left))


def retry_delay_ms(outcome: NotSent, retry: RetryPolicy, waits: int, luck: Luck) -> int:
    """Returns the wait that the provider asked for, within bounds; else the lane's own back-off."""
    if outcome.retry_after_ms is not None:
        return min(max(outcome.retry_after_ms, 0), MAX_RETRY_AFTER_MS)
    return backoff_ms(retry, waits, luck())


def _paced(
    delivery: Delivery, outcome: NotSent, answered_at: int, policy: LanePolicy, luck: Luck
) -> Settlement:
    """Returns a retry after the time that the provider asked for and a random while, until `patience_ends`.
    A refused login is tried once a minute, so that deliveries go soon after it is mended."""
    left = patience_ends(delivery, policy) - answered_at
    most_ms = LOGIN_MS if outcome.limit is Limit.LOGIN else MAX_PACED_MS
    asked = min(max(outcome.retry_after_ms or 0, 0), most_ms)
    if asked >= left:
        return Settlement(delivery, Event.BUDGET_SPENT, f"{PACED}:{outcome.code}")
    delay = asked + spread_ms(policy.retry, delivery.refusals, luck())
    # The last try comes before `patience_ends`.
    return Settlement(delivery, Event.NOT_SENT, outcome.code, delay_ms=min(delay, left))


def patience_ends(delivery: Delivery, policy: LanePolicy) -> int:
    """Returns the end of retries after refusals for pace alone, epoch milliseconds: the share
    `retry.patience` of its TTL, at most the horizon."""
    # An operator may have given it a longer life, another policy a shorter one.
    lifetime_ms = policy.lifetime_ms(delivery.notification.ttl_ms)
    lifetime_ms = min(lifetime_ms, delivery.expires_at - delivery.notification.created_at)
    kept_ms = round(lifetime_ms * (1 - policy.retry.patience))
    return min(delivery.expires_at - kept_ms, horizon_ends(delivery, policy.retry))


def horizon_ends(delivery: Delivery, retry: RetryPolicy) -> int:
    """Returns the end of retries, epoch milliseconds: from then on only its first call begins, or one that
    a person wants."""
    return delivery.notification.created_at + retry.horizon_ms


def may_call_again(delivery: Delivery, retry: RetryPolicy, at: int) -> bool:
    """Returns whether attempts and horizon allow another call at `at`, epoch milliseconds."""
    return delivery.spent < retry.attempts and at < horizon_ends(delivery, retry)


def spread_ms(retry: RetryPolicy, refusals: int, luck: float) -> int:
    """Returns a random wait on top of the provider's (`luck` from [0, 1)): at first up to `base_ms`, up to
    `factor` times as much with each refusal for pace, at most `cap_ms`. So deliveries that were refused
    together do not return together."""
    steps = min(max(refusals, 1) - 1, _STEPS)
    return max(1, int(min(retry.base_ms * retry.factor**steps, retry.cap_ms) * luck))
