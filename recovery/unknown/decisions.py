"""Decisions on deliveries in doubt: pure functions of the evidence and the lane's policy.

    the provider says it was sent          SENT
    the provider says it was not           RETRY, at once or when the provider wants it
    the provider says it never will be     REJECTED
    it took a task and cannot say yet      asked again while it tells results of tasks, then PARKED
    it took a task and never will say      PARKED
    the provider cannot say yet            asked again, until half of the time it had left is gone
    the provider will never say            as without a query
    its dedup window is open               RETRY as the same call: the provider drops a repeat
    no proof, the policy says resend       RETRY, counted as a possible duplicate
    no proof, the policy says park         PARKED
    no proof, its time or attempts over    PARKED
    a call later than its horizon          PARKED instead

A query goes before the dedup window, and that before the policy. "It was not sent" counts only after an
abandoned call has had its timeout once more to arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from channels.channel import Resolution, ResolveResult
from idempotency.recovery.contract import (
    ATTEMPTS_SPENT,
    QUEUED,
    TTL_IN_DOUBT,
    Transition,
    UnknownDelivery,
)
from message.states import Event, State
from policy.schema import LanePolicy
from sending.settlement import HORIZON_OVER, backoff_ms, horizon_ends

REPLAY: Final = "replay"
UNPROVEN: Final = "unproven"
UNCONFIRMED: Final = "unconfirmed"
"""The provider accepted a task and never named its receivers."""
RESOLVED: Final = "resolved_not_sent"
REFUSED: Final = "refused_in_doubt"
"""Refused, perhaps after an earlier success; a colon and the provider's code follow."""
_SOONEST_MS: Final = 1_000
_LATEST_MS: Final = 60_000
_PATIENCE: Final = 0.5
"""Share of the time from the last call to the TTL for which only the provider is asked."""

Luck = Callable[[], float]


class AskLater(NamedTuple):
    """No decision yet: the provider is asked again."""

    delay_ms: int


class Evidence(NamedTuple):
    """Evidence about one delivery in doubt."""

    resolved: ResolveResult | None
    """The provider's answer; None if it has no query, or no account is left to ask."""
    repeats_until: int
    """Epoch milliseconds until which the provider drops a repeat of the same call; 0: it does not."""
    results_until: int = 0
    """Epoch milliseconds until which the provider has the task's results; 0: it accepted no task."""


def conclude(
    doubt: UnknownDelivery, facts: Evidence, policy: LanePolicy, luck: Luck = random.random
) -> Transition | AskLater:
    """Returns the move to make now, or when to ask again."""
    found = facts.resolved
    if found is not None and found.resolution is Resolution.SENT:
        return _move(doubt, Event.RESOLVED_SENT, None, provider_id=found.provider_id)
    if found is not None and found.resolution is Resolution.NOT_SENT:
        if doubt.reason != QUEUED and doubt.now < doubt.since + policy.timeout_ms:
            return AskLater(doubt.since + policy.timeout_ms - doubt.now)
        return _move(doubt, Event.RESOLVED_NOT_SENT, RESOLVED, delay_ms=found.delay_ms)
    if found is not None and found.resolution is Resolution.REFUSED:
        return _move(doubt, Event.RESOLVED_REFUSED, found.detail.partition(": ")[0])
    if doubt.reason == QUEUED:
        return _of_task(doubt, facts)
    if doubt.now >= doubt.delivery.expires_at:
        return _move(doubt, Event.TTL, TTL_IN_DOUBT)
    if found is not None and not found.final and doubt.now < _patience_ends(doubt):
        return AskLater(_pause_ms(doubt))
    return _without_proof(doubt, facts, policy, luck)


def together(answers: Sequence[ResolveResult | None]) -> ResolveResult | None:
    """Returns one answer from all accounts that may have been called: sent if one has it as sent, not sent
    if all have it so. None if an account cannot be asked."""
    found = [answer for answer in answers if answer is not None]
    sent = next((r for r in found if r.resolution is Resolution.SENT), None)
    if sent is not None:
        return sent
    if not found or len(found) < len(answers):
        return None
    later = sorted((r for r in found if r.resolution is Resolution.ASK_LATER), key=_is_final)
    return next(iter(later), found[0])


def _of_task(doubt: UnknownDelivery, facts: Evidence) -> Transition | AskLater:
    """Returns the decision on an accepted task. It is not sent again without proof: most of it arrived."""
    left_ms = facts.results_until - doubt.now
    final = facts.resolved is not None and facts.resolved.final
    if left_ms > 0 and not final:
        return AskLater(min(pause_ms(doubt), left_ms))
    return _move(doubt, Event.PARK_UNPROVEN, UNCONFIRMED)


def _is_final(resolved: ResolveResult) -> bool:
    return resolved.final


def _without_proof(
    doubt: UnknownDelivery, facts: Evidence, policy: LanePolicy, luck: Luck
) -> Transition:
    if doubt.delivery.spent >= policy.retry.attempts:
        return _move(doubt, Event.PARK_UNPROVEN, ATTEMPTS_SPENT)
    delay_ms = backoff_ms(policy.retry, doubt.delivery.waits, luck())
    if facts.repeats_until > doubt.now:
        left = facts.repeats_until - doubt.now
        # Well before the window closes, since a later call would be no repeat.
        return _again(doubt, Event.REPLAY, REPLAY, min(delay_ms, left // 2), policy)
    if doubt.reason.startswith(REFUSED):
        return _move(doubt, Event.PARK_UNPROVEN, doubt.reason)
    if not policy.resends_unproven:
        return _move(doubt, Event.PARK_UNPROVEN, UNPROVEN)
    left = doubt.delivery.expires_at - doubt.now
    return _again(doubt, Event.RESEND_UNPROVEN, UNPROVEN, min(delay_ms, left // 2), policy)


def _again(
    doubt: UnknownDelivery, event: Event, reason: str, delay_ms: int, policy: LanePolicy
) -> Transition:
    """Returns the move to another call after `delay_ms`; to PARKED if its horizon is over by then."""
    if doubt.now + delay_ms >= horizon_ends(doubt.delivery, policy.retry):
        return _move(doubt, Event.PARK_UNPROVEN, HORIZON_OVER)
    return _move(doubt, event, reason, delay_ms=delay_ms)


def _move(
    doubt: UnknownDelivery,
    event: Event,
    reason: str | None,
    *,
    provider_id: str | None = None,
    delay_ms: int = 0,
) -> Transition:
    delivery = doubt.delivery
    return Transition(
        delivery.key,
        delivery.day,
        doubt.version,
        State.UNKNOWN,
        event,
        reason,
        provider_id,
        delay_ms,
    )


def _patience_ends(doubt: UnknownDelivery) -> float:
    return doubt.last_call + (doubt.delivery.expires_at - doubt.last_call) * _PATIENCE


def pause_ms(doubt: UnknownDelivery) -> int:
    """Returns half of the time since the last call, bounded: each pause is longer than the one before."""
    age = max(doubt.now - doubt.last_call, 0)
    return min(max(age // 2, _SOONEST_MS), _LATEST_MS)


def _pause_ms(doubt: UnknownDelivery) -> int:
    """Returns `pause_ms`, cut at the moment from which the policy decides."""
    return max(1, min(pause_ms(doubt), int(_patience_ends(doubt)) - doubt.now))
