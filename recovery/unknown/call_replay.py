"""Repeats of joint calls: what the provider knows by all of its receivers can only be made again for all.

A row that alone would be no repeat (WeCom compares the whole request) is looked at with the others of its
call, and where these are all still in doubt, and together the same to the provider's dedup, the very call
is made once more:

    accepted                       it was sent, now or before                    SENT
    refused, while others got it   nothing was sent to this one, now or before   RETRY
    anything else                  says nothing of the first call                in doubt, again later

The rows stay UNKNOWN meanwhile, under their lease: in doubt they are, and a recovery that dies over it
leaves them as they were. Two that repeat one call at the same time do what one does.
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

log = structlog.get_logger(__name__)
_MS: Final = 1_000
_LEASE: Final = 2
"""Timeouts: the call itself, and the writing."""

Render = Callable[[Delivery], bool]
"""See `recovery.unknown.resolver.Render`."""


class Calling(Protocol):
    """What runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """One outcome per delivery of the call."""
        ...


class Repeating:
    """Thread-safe: its state is the ledger's."""

    def __init__(
        self,
        ledger: RecoveryStore,
        engine: Calling,
        *,
        render: Render,
        report: RecoveryTelemetry,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._render = render
        self._report = report
        self._monotonic = monotonic

    def repeat(
        self, doubt: UnknownDelivery, route: Route, routes: RetryLane
    ) -> UnknownDelivery | None:
        """Repeat the doubt's call for all of it, or see to it later: None. Else the doubt as it stands now:
        the call cannot be repeated. Raises LedgerError."""
        policy = routes.policy
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
        """Whether these make the very call again, in time for the provider to know it."""
        if not all(_in_time(one, route, policy) for one in doubts):
            return False
        if not all(self._render(one.delivery) for one in doubts):
            return False
        return route.digest([one.delivery for one in doubts]) == doubts[0].call_digest

    def _call(
        self, doubts: Sequence[UnknownDelivery], route: Route, routes: RetryLane
    ) -> list[AnyOutcome]:
        timeout_s, begun_at = routes.policy.timeout_ms / _MS, self._monotonic()
        # Past its lease others may ask: the rows are not ours to call for any more.
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
    """Whether it may be of a call that only all of its receivers together can repeat."""
    joint = route.channel.max_batch > 1 and bool(doubt.call_digest)
    return joint and _in_time(doubt, route, policy)


def _in_time(doubt: UnknownDelivery, route: Route, policy: LanePolicy) -> bool:
    """Whether a repeat begun now arrives while the provider still knows the call, and before its TTL."""
    ends = route.window_ends(doubt.called_at, policy.timeout_ms)
    return doubt.now < min(ends, doubt.delivery.expires_at)


def _not_before(doubt: UnknownDelivery, policy: LanePolicy) -> int:
    """For how many milliseconds nothing is sent: it is quiet, or others of the call may still be on their
    way here."""
    settling = doubt.since + policy.timeout_ms - doubt.now
    return max(quiet_ms(policy.quiet_hours, doubt.now), settling, 0)


def _granted(doubts: Sequence[UnknownDelivery], route: Route, routes: RetryLane) -> bool:
    """Whether the account may send as many now; all of them or none."""
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
        return (
            None  # its task is not kept here: the repeat of one receiver alone has one of its own
        )
    if isinstance(outcome, Accepted):
        return Transition(*about, Event.RESOLVED_SENT, None, outcome.provider_id or None)
    if taken and not isinstance(outcome, Unknown):
        return Transition(*about, Event.RESOLVED_NOT_SENT, RESOLVED)
    return None
