"""Retry stage: takes due rows, calls the provider once more, and writes the outcomes.

    take      rows of one lane, as many as its few threads and its rate have room for ─▶ IN_FLIGHT
    hold back deliveries that their provider would drop silently wait in the ledger instead
    group     recovery/retry/batching.py
    keep      account, call key and digest go into the ledger, before any call
    call      recovery/retry/pool.py
    settle    recovery/retry/settler.py

Taken rows without an outcome are swept with the process that took them, as a worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import structlog

from idempotency.ledger import Settlement
from idempotency.recovery.contract import (
    DueDelivery,
    DueQuery,
    Ended,
    RecordedCall,
    by_operator,
)
from message.delivery import Delivery
from message.ids import new_token
from message.reasons import code_of, mender_of
from message.states import Event
from policy.quiet_hours import quiet_ms
from policy.schema import Guarantee, LanePolicy, Ordering
from recovery.retry.batching import calls_of
from recovery.retry.pool import WINDOW_OVER, RetryWork
from recovery.retry.retry_lane import RetryLane
from recovery.retry.settler import RetryContext, RetrySettler
from recovery.unknown.decisions import REPLAY
from sending.adapter_refusals import refusal_of
from sending.batching import put_on_record
from sending.lane_routes import Route
from sending.settlement import HORIZON_OVER, horizon_ends

log = structlog.get_logger(__name__)
SETTLE_BATCH: Final = 200
NO_ACCOUNT: Final = "no_account"
_IDLE_S: Final = 0.5
_STEP_MS: Final = 250
"""Waits for an account are rounded up to it, so that several share a statement."""
_FAULT_MS: Final = 5_000
"""Wait of rows that were taken in a look which failed."""
_LOOKS: Final = 50
"""Most looks in a row while no taken row may be sent now: such rows must not hide others."""

Render = Callable[[Delivery], str]
"""See `recovery.unknown.resolver.Render`."""


class LeaseView(Protocol):
    """The state of the lease (sending/runtime/lease.py)."""

    @property
    def term(self) -> int:
        """Number of the term; a lapse begins a new one."""
        ...

    @property
    def valid(self) -> bool:
        """Whether a send may begin."""
        ...


class RetryStage:
    """`run_once` is thread-safe."""

    def __init__(
        self,
        context: RetryContext,
        settler: RetrySettler,
        *,
        owner: str,
        lease: LeaseView,
        render: Render,
        delays: Callable[[Sequence[tuple[str, str]]], list[int]] = lambda batch: [0] * len(batch),
        on_sending: Callable[[], None] = lambda: None,
    ) -> None:
        """`delays`: per (account, receiver), the milliseconds for which its provider's limit holds it.
        `on_sending` is called before taken deliveries are sent."""
        self._context = context
        self._settler = settler
        self._owner = owner
        self._lease = lease
        self._render = render
        self._delays = delays
        self._on_sending = on_sending

    # ---- taking ------------------------------------------------------------------------------

    def run_once(self, lane: str) -> int | None:
        """Takes the lane's due rows and hands them to its threads. Returns their number; None if there was
        no room. Raises LedgerError."""
        counts = [self._run(lane, first=first) for first in (False, True)]
        return sum(filter(None, counts)) or (None if None in counts else 0)

    def _run(self, lane: str, *, first: bool) -> int | None:
        """As `run_once`, for first sends or for retries."""
        pools, pace = self._context.kind(first=first)
        callers, routes = pools[lane], self._context.lanes[lane]
        if callers.paused:
            return 0
        room = min(max(callers.room, 0), routes.accounts.room()) if self._lease.valid else 0
        room = pace.take(lane, room) if room else 0
        if not room:
            return None
        callers.hold(room)
        calls: list[list[RetryWork]] = []
        try:
            # A drain that saw nothing unsettled ends: what is counted after `stop` must not be taken.
            for _ in range(0 if callers.stopping else _LOOKS):
                seen, calls = self._take(routes, room, first=first)
                if calls or not seen:
                    break
        finally:
            begun = sum(map(len, calls))
            callers.fill(room, begun)
            pace.used(lane, room, begun)
        if calls:
            self._on_sending()
        for call in calls:
            callers.put(call)
        return begun

    def _take(
        self, routes: RetryLane, room: int, *, first: bool
    ) -> tuple[int, list[list[RetryWork]]]:
        """Looks once. Returns how many rows were taken, and the calls to make; other rows wait again or
        ended. Gives the rows back if it fails: no sweep finds them while this process lives."""
        policy, term, token = routes.policy, self._lease.term, new_token()
        ordered = policy.ordering is Ordering.KEY
        ask = DueQuery(routes.lane.name, policy.retry.attempts, ordered, room, first)
        # One token for all tries: rows taken by a try whose reply was lost are found again.
        taking = self._context.outage.until_available(
            "take", partial(self._context.rows.take, ask, self._owner, token)
        )
        try:
            self._report_ended(taking.ended, ask.lane, ordered=ordered)
            return len(taking.taken), self._calls(taking.taken, routes, term, first=first)
        except Exception:
            self._settler.put_off(taking.taken, _FAULT_MS)
            raise

    def _report_ended(self, ended: Sequence[Ended], lane: str, *, ordered: bool) -> None:
        """Reports rows that ended instead of being taken."""
        self._context.report.ended(ended)
        if ordered and ended:
            self._settler.on_woken(lane)
        self._settler.give_back([(row.lane, row.key) for row in ended if not row.doubted])

    def _calls(
        self, rows: Sequence[DueDelivery], routes: RetryLane, term: int, *, first: bool
    ) -> list[list[RetryWork]]:
        """Returns the calls to make for these rows, on record; other rows wait again or ended."""
        if quiet := quiet_ms(routes.policy.quiet_hours, self._context.clock.now_ms()):
            self._settler.put_off(rows, quiet)
            return []
        ready: list[RetryWork] = []
        waiting: dict[int, list[DueDelivery]] = {}
        for taken in rows:
            found = self._resend(taken, routes, term)
            if isinstance(found, RetryWork):
                found.first = first
                ready.append(found)
            elif isinstance(found, Settlement):
                self._settler.end_unsent(found, doubted=taken.doubted_since is not None)
            else:  # several share a statement
                waiting.setdefault(found + -found % _STEP_MS, []).append(taken)
        for delay_ms, some in waiting.items():
            self._settler.put_off(some, delay_ms)
        calls = calls_of(self._held_back(ready, routes), routes.most)
        for call in calls:
            put_on_record(call, call[0].delivery.call_key)
        return self._kept(calls)

    def _held_back(self, resends: Sequence[RetryWork], routes: RetryLane) -> list[RetryWork]:
        """Returns the retries to send now. Those that their provider would drop silently wait in the
        ledger."""
        pairs = [(resend.route.account.name, resend.delivery.receiver) for resend in resends]
        delays = self._delays(pairs)
        for resend, delay_ms in zip(resends, delays, strict=True):
            if delay_ms:
                routes.accounts.release(resend.route.account)
                self._settler.put_off([resend.taken], delay_ms)
        return [r for r, delay_ms in zip(resends, delays, strict=True) if not delay_ms]

    def _resend(
        self, taken: DueDelivery, routes: RetryLane, term: int
    ) -> RetryWork | Settlement | int:
        """Returns the retry to send; a settlement if it cannot be; milliseconds if it must wait."""
        delivery, same = taken.delivery, taken.reason == REPLAY
        delivery.policy_version = routes.version
        bound = routes.bound_to(delivery, same=same)
        # Where an earlier call may have sent it: parked here, the row would lose its doubt.
        unfit = Event.PARK if taken.doubted_since is None else Event.UNKNOWN
        if self._horizon_over(taken, routes.policy):
            return Settlement(delivery, unfit, HORIZON_OVER)
        if bound is not None and routes.of(bound) is None:
            return Settlement(delivery, unfit, NO_ACCOUNT)
        if fault := self._render(delivery):
            return Settlement(delivery, unfit, fault)
        route = routes.choose(delivery, bound)
        if route is None:
            return routes.wait_ms(delivery, bound)
        ending = _unfit(taken, route, same=same)
        if ending is not None:
            routes.accounts.release(route.account)
            return ending
        timeout_ms = routes.policy.timeout_ms
        until = route.window_ends(taken.doubted_since or 0, timeout_ms) if same else 0
        return RetryWork(taken, route, term, until)

    def _horizon_over(self, taken: DueDelivery, policy: LanePolicy) -> bool:
        """Returns whether it is too late for another call; never for a first one, or one that a person
        wants."""
        delivery = taken.delivery
        if delivery.attempt <= 1 or by_operator(taken.reason):
            return False
        return self._context.clock.now_ms() >= horizon_ends(delivery, policy.retry)

    def _kept(self, calls: list[list[RetryWork]]) -> list[list[RetryWork]]:
        """Returns the calls that are on record now, without rows that were swept meanwhile."""
        if not calls:
            return []
        made = [_called(resend.delivery) for call in calls for resend in call]
        answers = iter(
            self._context.outage.until_available("keep", partial(self._context.rows.keep, made))
        )
        ours = [[r for r in call if self._ours(r, next(answers))] for call in calls]
        self._context.report.taken([resend for call in ours for resend in call])
        return [call for call in ours if call]

    def _ours(self, resend: RetryWork, kept: bool) -> bool:
        if not kept:
            self._context.lanes[resend.delivery.lane].accounts.release(resend.route.account)
        return kept


def served(policy: LanePolicy) -> bool:
    """Returns whether a lane has a ledger, and so recovery."""
    return policy.guarantee is not Guarantee.BEST_EFFORT


def _unfit(taken: DueDelivery, route: Route, *, same: bool) -> Settlement | None:
    """Returns the settlement of a delivery that this account cannot repeat or send; None if it can."""
    delivery = taken.delivery
    refusal = refusal_of(delivery, route.account, route.channel)
    if not refusal:
        other = same and not route.repeats([delivery], taken.call_digest)
        return Settlement(delivery, Event.UNKNOWN, WINDOW_OVER) if other else None
    code = code_of(refusal)
    if taken.doubted_since is not None:
        return Settlement(delivery, Event.UNKNOWN, code)
    if mender_of(code):
        return Settlement(delivery, Event.PARK, refusal)
    return Settlement(delivery, Event.REFUSED, code)


def _called(d: Delivery) -> RecordedCall:
    digest, version = d.call_digest or None, d.policy_version or None
    return RecordedCall(d.key, d.day, d.token, d.account, d.call_key, digest, version)
