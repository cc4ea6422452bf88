"""Resolver: asks providers about calls in doubt, and makes the move that follows.

One recovery at a time asks about a row, under a lease in the row; one that dies costs the time until the
lease ends. To keep that short the lease does not cover a whole batch of slow answers: the rest is left to
the next look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from channels.channel import Account, Attempt, Channel, Resolution, ResolveResult
from channels.engine import Asked
from idempotency.recovery.contract import QUEUED, Ended, RecoveryStore, Transition, UnknownDelivery
from message.delivery import Delivery
from recovery.retry.retry_lane import RetryLane
from recovery.telemetry import RecoveryTelemetry
from recovery.unknown.call_replay import Calling, Repeating, is_joint
from recovery.unknown.decisions import AskLater, Evidence, conclude, together
from sending.lane_routes import Route

log = structlog.get_logger(__name__)
BATCH: Final = 20
"""Most rows under one lease."""
MORE_S: Final = 1.0
"""Time in which further batches follow the first."""
_QUESTIONS: Final = 4
"""Requests of the last row for which the lease leaves time; the rows before it may take as long."""
_MS: Final = 1_000

Render = Callable[[Delivery], str]
"""Writes `delivery.rendered`. Returns the reason for which its template cannot be rendered, as
`code: sentence`; empty if it can."""


class Asking(Calling, Protocol):
    """Runs an adapter's queries and never raises (channels/engine.py)."""

    def resolve(
        self,
        channel: Channel,
        account: Account,
        attempt: Attempt,
        timeout_s: float,
        asked: Asked | None = None,
    ) -> ResolveResult | None:
        """Returns the provider's answer about the attempt; None if it has no query. A question in `asked`
        is not sent again."""
        ...


class _Batch(NamedTuple):
    """The result of one batch."""

    doubts: int
    """Number of doubts that it came to."""
    asked: bool
    """Whether a provider was asked."""


class Resolving:
    """Resolves doubts. Thread-safe: its state is in the ledger."""

    def __init__(
        self,
        ledger: RecoveryStore,
        routes: Mapping[str, RetryLane],
        engine: Asking,
        *,
        render: Render,
        report: RecoveryTelemetry,
        stopping: Callable[[], bool],
        paused: Callable[[str], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`paused` returns whether a person paused the lane: questions go on, repeats of calls wait."""
        self._ledger = ledger
        self._routes = routes
        self._engine = engine
        self._render = render
        self._report = report
        self._stopping = stopping
        self._monotonic = monotonic
        self._repeating = Repeating(
            ledger, engine, render=render, report=report, paused=paused, monotonic=monotonic
        )

    def run_once(self, lane: str) -> int:
        """Resolves a batch of the lane's doubts; and further ones for MORE_S, as long as no provider is
        asked: the database alone bounds their pace. Returns how many it came to. Raises LedgerError."""
        count, until = 0, self._monotonic() + MORE_S
        while True:
            done = self._batch(lane)
            count += done.doubts
            full = done.doubts == BATCH and not done.asked
            if not full or self._stopping() or self._monotonic() >= until:
                return count

    def _batch(self, lane: str) -> _Batch:
        routes = self._routes[lane]
        last_ms = _QUESTIONS * routes.policy.timeout_ms
        until = self._monotonic() + last_ms / _MS
        ended: list[Ended] = []
        doubts = self._ledger.doubts(lane, 2 * last_ms, BATCH, ended=ended)
        self._report.ended(ended)
        seen_to: set[str] = set()
        asked: Asked = {}
        some_asked = False
        for number, doubt in enumerate(doubts):
            if self._stopping() or self._monotonic() > until:
                self._leave(doubts[number:])
                return _Batch(number, some_asked)
            some_asked |= self._settle(doubt, routes, seen_to, asked)
        return _Batch(len(doubts), some_asked)

    def _settle(
        self, doubt: UnknownDelivery, routes: RetryLane, seen_to: set[str], asked: Asked
    ) -> bool:
        """Resolves one doubt and writes it at once, so that no answer is lost with a batch. Returns whether
        a provider was asked. `seen_to`: keys of the joint calls that this look has repeated. `asked`: this
        look's answers about tasks, which several receivers may share."""
        if doubt.delivery.call_key in seen_to:
            return True
        facts = self._facts(doubt, routes, asked)
        joint = self._joint(doubt, facts, routes)
        if joint is not None:
            left = self._repeating.repeat(doubt, joint, routes)
            if left is None:
                seen_to.add(doubt.delivery.call_key)
                return True
            doubt = left
        found = conclude(doubt, facts, routes.policy)
        if isinstance(found, AskLater):
            self._ledger.ask_again(doubt, found.delay_ms)
            self._report.asked_again(doubt)
        else:
            self._write(doubt, found)
        return facts.resolved is not None and doubt.receipt is None

    def _write(self, doubt: UnknownDelivery, move: Transition) -> None:
        if self._ledger.move([move])[0]:
            self._report.resolved(doubt, move)
        else:
            log.info("resolved_elsewhere", delivery=doubt.delivery.key, as_=move.event.name)

    def _facts(self, doubt: UnknownDelivery, routes: RetryLane, questions: Asked) -> Evidence:
        if doubt.receipt is not None:
            return Evidence(ResolveResult(Resolution.SENT, doubt.receipt), 0)
        if doubt.task:
            return self._of_task(doubt, routes, questions)
        asked = routes.asked(doubt.delivery)
        timeout_ms = routes.policy.timeout_ms
        # An account that is gone knows of a call about which the others know nothing.
        answers: list[ResolveResult | None] = [
            self._ask(doubt, route, timeout_ms) for route in asked
        ] or [None]
        for name in doubt.earlier_accounts:
            route = routes.of(name)
            answers.append(None if route is None else self._ask(doubt, route, timeout_ms))
        until = self._repeats_until(doubt, asked[0], timeout_ms) if len(asked) == 1 else 0
        return Evidence(together(answers), until)

    def _of_task(self, doubt: UnknownDelivery, routes: RetryLane, questions: Asked) -> Evidence:
        """Returns the evidence of an accepted task, which only its account knows."""
        route = routes.of(doubt.delivery.account)
        if route is None:
            return Evidence(None, 0)
        attempt = Attempt(
            doubt.delivery,
            doubt.called_at,
            doubt.now,
            task=doubt.task,
            last_called_at=doubt.last_call,
        )
        timeout_s = routes.policy.timeout_ms / _MS
        found = self._engine.resolve(route.channel, route.account, attempt, timeout_s, questions)
        return Evidence(found, 0, doubt.since + route.channel.result_window_ms)

    def _joint(self, doubt: UnknownDelivery, facts: Evidence, routes: RetryLane) -> Route | None:
        """Returns the route of a joint call to repeat as a whole; None if there is other evidence."""
        if doubt.reason == QUEUED:
            return None
        asked = routes.asked(doubt.delivery)
        known = facts.resolved is not None or facts.repeats_until or len(asked) != 1
        if known or doubt.now >= doubt.delivery.expires_at:
            return None
        return asked[0] if is_joint(doubt, asked[0], routes.policy) else None

    def _ask(self, doubt: UnknownDelivery, route: Route, timeout_ms: int) -> ResolveResult | None:
        attempt = Attempt(
            doubt.delivery, doubt.called_at, doubt.now, last_called_at=doubt.last_call
        )
        return self._engine.resolve(route.channel, route.account, attempt, timeout_ms / _MS)

    def _repeats_until(self, doubt: UnknownDelivery, route: Route, timeout_ms: int) -> int:
        """Returns the end of the provider's dedup window; 0 also if the call's body would differ."""
        until = route.window_ends(doubt.called_at, timeout_ms)
        if until <= doubt.now or not doubt.delivery.account or self._render(doubt.delivery):
            return 0
        return until if route.repeats([doubt.delivery], doubt.call_digest) else 0

    def _leave(self, doubts: Sequence[UnknownDelivery]) -> None:
        for doubt in doubts:
            self._ledger.ask_again(doubt, 0)
