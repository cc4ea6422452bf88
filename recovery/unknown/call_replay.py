"""Repeats of joint calls, for a provider whose dedup compares the whole request (WeCom).

A row alone would be no repeat there, so it is looked at with the others of its call. If all are still in
doubt, and together the same to the provider's dedup, the call is made once more:

    accepted                       it was sent, now or before                    SENT
    refused, while others got it   nothing was sent to this one, now or before   RETRY
    anything else                  says nothing of the first call                in doubt, again later

A repeat may reach receivers, so a paused lane makes none.

The rows stay UNKNOWN meanwhile, under their lease, so that a recovery that dies leaves them as they were.
Two recoveries that repeat one call at the same time have the effect of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from channels.channel import Call, Channel
from idempotency.recovery.contract import RecoveryStore, Transition, UnknownDelivery
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Unknown
from message.states import Event, State
from policy.quiet_hours import quiet_ms
from policy.schema import LanePolicy
from recovery.retry.retry_lane import RetryLane
from recovery.telemetry import RecoveryTelemetry
from recovery.unknown.decisions import RESOLVED, pause_ms
from sending.lane_routes import Route
from sending.settlement import horizon_ends

log = structlog.get_logger(__name__)
_MS: Final = 1_000
_LEASE: Final = 2
"""Number of timeouts in a lease: one for the call, one for the writes."""

Render = Callable[[Delivery], str]
"""See `recovery.unknown.resolver.Render`."""


class Calling(Protocol):
    """Runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """Returns one outcome per delivery of the call."""
        ...


class Repeating:
    """Repeats joint calls. Thread-safe: its state is in the ledger."""

    def __init__(
        self,
        ledger: RecoveryStore,
        engine: Calling,
        *,
        render: Render,
        report: RecoveryTelemetry,
        paused: Callable[[str], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`paused` returns whether a person paused the lane."""
        self._ledger = ledger
        self._engine = engine
        self._render = render
        self._report = report
        self._paused = paused
        self._monotonic = monotonic

    def repeat(
        self, doubt: UnknownDelivery, route: Route, routes: RetryLane
    ) -> UnknownDelivery | None:
        """Repeats the doubt's whole call, or puts it off. Returns None then; the present doubt if the call
        cannot be repeated. Raises LedgerError."""
        policy = routes.policy
        if self._paused(doubt.delivery.lane):
            self._later([doubt], pause_ms)
            return None
        wait_ms = _not_before(doubt, policy)
        if wait_ms:
            self._later([doubt], lambda _: wait_ms)
            return None
        doubts = self._ledger.joined(doubt, _LEASE * policy.timeout_ms)
        own = next((one for one in doubts if one.delivery.key == doubt.delivery.key), None)
        if own is None or not self._same(doubts, route, policy):
            self._later([one for one in doubts if one is not own], lambda _: 0)
            return own or doubt
        if not _granted(doubts, route, routes):
            self._later(doubts, lambda _: routes.pause_ms(route.account.name))
        else:
            self._settle(doubts, self._call(doubts, route, routes))
        return None

    def _same(self, doubts: Sequence[UnknownDelivery], route: Route, policy: LanePolicy) -> bool:
        """Returns whether these make the same call again, within the provider's dedup window."""
        if not all(_in_time(one, route, policy) for one in doubts):
            return False
        if any(self._render(one.delivery) for one in doubts):
            return False
        return route.repeats([one.delivery for one in doubts], doubts[0].call_digest)

    def _call(
        self, doubts: Sequence[UnknownDelivery], route: Route, routes: RetryLane
    ) -> list[AnyOutcome]:
        timeout_s, begun_at = routes.policy.timeout_ms / _MS, self._monotonic()
        # After the lease another recovery may take the rows.
        call = Call(route.account, [one.delivery for one in doubts], not_after=begun_at + timeout_s)
        outcomes = self._engine.send(route.channel, call, timeout_s)
        routes.accounts.record(route.account, outcomes, begun_at)
        return outcomes

    def _settle(self, doubts: Sequence[UnknownDelivery], outcomes: Sequence[AnyOutcome]) -> None:
        taken = any(isinstance(outcome, Accepted) for outcome in outcomes)
        pairs = zip(doubts, outcomes, strict=True)
        found = [(doubt, _move(doubt, outcome, taken=taken)) for doubt, outcome in pairs]
        moves = [(doubt, move) for doubt, move in found if move is not None]
        written = self._ledger.move([move for _, move in moves])
        for (doubt, move), ours in zip(moves, written, strict=True):
            if ours:
                self._report.resolved(doubt, move)
            else:
                log.info("resolved_elsewhere", delivery=doubt.delivery.key, as_=move.event.name)
        self._later([doubt for doubt, move in found if move is None], pause_ms)

    def _later(
        self, doubts: Sequence[UnknownDelivery], delay_ms: Callable[[UnknownDelivery], int]
    ) -> None:
        for doubt in doubts:
            self._ledger.ask_again(doubt, delay_ms(doubt))
            self._report.asked_again(doubt)


def is_joint(doubt: UnknownDelivery, route: Route, policy: LanePolicy) -> bool:
    """Returns whether it may belong to a joint call that can only be repeated as a whole."""
    joint = route.channel.max_batch > 1 and bool(doubt.call_digest)
    return joint and _in_time(doubt, route, policy)


def _in_time(doubt: UnknownDelivery, route: Route, policy: LanePolicy) -> bool:
    """Returns whether a repeat may begin now: within the horizon and the TTL, and so that it arrives within
    the provider's dedup window."""
    ends = route.window_ends(doubt.called_at, policy.timeout_ms)
    horizon = horizon_ends(doubt.delivery, policy.retry)
    return doubt.now < min(ends, horizon, doubt.delivery.expires_at)


def _not_before(doubt: UnknownDelivery, policy: LanePolicy) -> int:
    """Returns for how many milliseconds nothing is sent: in quiet hours, or while other rows of the call
    may still come into doubt."""
    settling = doubt.since + policy.timeout_ms - doubt.now
    return max(quiet_ms(policy.quiet_hours, doubt.now), settling, 0)


def _granted(doubts: Sequence[UnknownDelivery], route: Route, routes: RetryLane) -> bool:
    """Returns whether the account may send all of them now; takes all permits or none."""
    name = route.account.name
    for number, doubt in enumerate(doubts):
        if routes.choose(doubt.delivery, name) is None:
            routes.accounts.release(route.account, number)
            return False
    return True


def _move(doubt: UnknownDelivery, outcome: AnyOutcome, *, taken: bool) -> Transition | None:
    delivery = doubt.delivery
    about = (delivery.key, delivery.day, doubt.version, State.UNKNOWN)
    if isinstance(outcome, Accepted) and outcome.queued:
        return None  # the task is not kept here: the repeat of one receiver has a task of its own
    if isinstance(outcome, Accepted):
        return Transition(*about, Event.RESOLVED_SENT, None, outcome.provider_id)
    if taken and not isinstance(outcome, Unknown):
        return Transition(*about, Event.RESOLVED_NOT_SENT, RESOLVED)
    return None
