"""Pool of the threads that make one lane's retries: few, so as not to slow down live traffic.

A call carries one delivery or several, as in a live lane; a refused delivery goes through another account.
A delivery does not begin past its expires_at, under a lapsed lease, while its lane is paused, or while
recovery stops. A repeat does not begin outside the provider's dedup window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from queue import SimpleQueue
from typing import Final, Protocol

import msgspec
import structlog

from channels.accounts.time_limits import limits_of
from channels.channel import Call, Channel
from channels.http_client.failures import LEASE_LAPSED
from idempotency.ledger import LedgerUnavailable
from idempotency.recovery.contract import TTL_IN_DOUBT, DueDelivery
from message.delivery import Delivery
from message.outcomes import AnyOutcome, Unknown
from message.states import Event
from recovery.retry.retry_lane import RetryLane
from sending.accounts.receiver_limits import Delays
from sending.accounts.selector import ACCOUNT_SHUT, may_fail_over
from sending.attempts import PastCall, fitting, note_refusals, on_record, permitted
from sending.batching import put_on_record
from sending.call_pool import CallPool, SendPermit
from sending.endings import LANE_PAUSED, Ending, NotStarted, outcome_of
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from sending.runtime.work_queue import WorkQueue
from sending.settlement import may_call_again

log = structlog.get_logger(__name__)
_MS: Final = 1_000
_STEP_S: Final = 0.25
WINDOW_OVER: Final = "dedup_window_over"


class RetryEngine(Protocol):
    """Runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """Returns one outcome per delivery of the call."""
        ...


class RetryWork(msgspec.Struct, gc=False):
    """One taken delivery. After `put`, threads of `RetryPool` write it; then `RetryStage.settle` reads."""

    taken: DueDelivery
    route: Route
    term: int
    """Term of the lease under which it was taken."""
    not_after: int
    """End of the provider's dedup window, epoch milliseconds; 0 if it is no repeat."""
    end: Ending | None = None
    started_at: int = 0
    answered_at: int = 0
    tries: tuple[PastCall, ...] = ()
    """The calls before the last."""
    first: bool = False
    """Whether it was never called before it was taken; then it is in the pool for first sends."""

    @property
    def delivery(self) -> Delivery:
        """The delivery to send."""
        return self.taken.delivery

    @property
    def answer(self) -> AnyOutcome:
        """The outcome of a retry whose call ended."""
        outcome = outcome_of(self.end)
        assert outcome is not None
        return outcome

    @property
    def doubted(self) -> bool:
        """Whether an earlier call of it may have sent it."""
        return self.taken.doubted_since is not None


class RetryPool(CallPool[RetryWork]):
    """One lane's threads. `RetryStage.run_once` calls `put`; `finished` gets back every item."""

    def __init__(
        self,
        routes: RetryLane,
        threads: int,
        engine: RetryEngine,
        *,
        permit: SendPermit,
        clock: Clock,
        finished: SimpleQueue[RetryWork | None],
        reroute: Callable[[Sequence[Delivery]], list[bool]],
        delays: Delays,
        lazy: bool = False,
    ) -> None:
        """`reroute` is `Ledger.reroute`: it puts another account on record before its call. `delays` is
        asked before that; `RetryStage` asks before the first call. `lazy`: the threads start with the first
        call."""
        super().__init__(routes.lane.name, permit=permit, clock=clock, prefix="resend-")
        self.lane = routes.lane
        self._wanted = threads
        self._capacity = 2 * threads * routes.batch
        self._routes = routes
        self._engine = engine
        self._finished = finished
        self._reroute = reroute
        self._delays = delays
        self._queue: WorkQueue[Sequence[RetryWork] | None] = WorkQueue()
        # Guarded by _sizing, as are the numbers of threads:
        self._open = 0  # taken and not settled, and held
        self._held = 0  # of these: places of looks under way
        self._lazy = lazy  # written by `put`

    @property
    def room(self) -> int:
        """Number of deliveries that may be taken now. Each thread may have a call under way and one queued.
        It is 0 until half of the queued ones are gone, so that rows are taken together."""
        free = self._capacity - self._open
        return free if free > self._capacity // 4 else 0

    @property
    def unsettled(self) -> int:
        """Number of deliveries taken and not settled, and of places that a look under way may fill."""
        return self._open

    @property
    def in_flight(self) -> int:
        """Number of deliveries taken and not settled."""
        with self._sizing:
            return self._open - self._held

    def start(self) -> None:
        """Starts the threads."""
        with self._sizing:
            if not self._lazy:
                self._resize(self._wanted)

    def adopt(self, routes: RetryLane, threads: int) -> None:
        """Follows another policy: later calls act under it. Surplus threads end after the calls that were
        queued before."""
        with self._sizing:
            self._routes, self._wanted = routes, threads
            self._capacity = 2 * threads * routes.batch
            if self._threads:
                self._resize(threads)

    def hold(self, places: int) -> None:
        """Holds places for the rows that a look may take."""
        with self._sizing:
            self._open += places
            self._held += places

    def fill(self, places: int, taken: int) -> None:
        """Ends a look that held `places` and took so many rows."""
        with self._sizing:
            self._open += taken - places
            self._held -= places

    def take_up(self, count: int) -> None:
        """Counts `count` deliveries as taken; below 0 it takes a count back."""
        with self._sizing:
            self._open += count

    def put(self, call: Sequence[RetryWork]) -> None:
        """Queues one call, whose deliveries `fill` has counted."""
        if self._lazy:
            self._lazy = False
            self.start()
        self._queue.put(call)

    def stop(self) -> None:
        """Begins nothing more: waiting deliveries are given back, begun calls end. Idempotent."""
        self._stopping = True

    def close(self) -> None:
        """Ends the threads; called after the last `put`."""
        with self._sizing:
            self._resize(0)

    def _end_thread(self) -> None:
        self._queue.put(None)

    def _serve(self, name: str) -> None:
        """Serves until `close`; a thread that dies is replaced, and the deliveries of its call are in
        doubt."""
        call: Sequence[RetryWork] | None = None
        waiter = self._queue.waiter()
        try:
            while (call := self._queue.take(waiter)) is not None:
                self._run(call)
                for resend in call:
                    self._finished.put(resend)
        except BaseException as exc:
            log.exception("resend_thread_died", thread=name, cause=repr(exc))
            for resend in call or ():
                if not isinstance(resend.end, NotStarted):
                    resend.end = Unknown(code="thread_died", detail=repr(exc))
                self._finished.put(resend)
            self.replaced += 1
            self._replace(name)

    def _run(self, resends: Sequence[RetryWork]) -> None:
        """Makes one call for the deliveries that may begin; refused ones go through other accounts."""
        beginning = [resend for resend in resends if self._may_begin(resend)]
        tried: list[str] = []
        while beginning:
            tried.append(beginning[0].route.account.name)
            self._call(beginning)
            beginning = self._through_another(beginning, tried)

    def _call(self, resends: Sequence[RetryWork]) -> None:
        (account, channel), begun_at = resends[0].route, self._clock.monotonic()
        limits = limits_of(account, self._routes.policy)
        call = self._call_for(resends, limits, waits=True)
        outcomes = self._engine.send(channel, call, limits.total)
        now = self._clock.now_ms()
        for resend, outcome in zip(resends, outcomes, strict=True):
            resend.end, resend.answered_at = outcome, now
        self._routes.accounts.record(account, outcomes, begun_at)
        note_refusals(resends)
        for resend in resends:
            self._take_back(resend)

    def _through_another(
        self, resends: Sequence[RetryWork], tried: Sequence[str]
    ) -> list[RetryWork]:
        """Returns the deliveries to call by another account, on record; the others keep their outcome."""
        first = next((resend for resend in resends if self._may_fail_over(resend)), None)
        if first is None:
            return []
        routes = self._routes
        refuses = routes.refuses(first.delivery)
        other = routes.accounts.failover(first.delivery, first.answer, tried, refuses)
        route = None if other is None else routes.of(other.name)
        if route is None:
            return []
        fit = fitting(resends, first, *route, self._may_fail_over)
        allowed = permitted(fit, routes.accounts, route.account, 1, self._delays)
        going = self._on_record(allowed, route)
        routes.accounts.release(route.account, len(allowed) - len(going))
        return going

    def _may_fail_over(self, resend: RetryWork) -> bool:
        """Returns whether another account may send it. Not if it is in doubt: another account's success is
        no evidence about the earlier call."""
        return (
            not resend.doubted
            and may_fail_over(resend.delivery, resend.answer)
            and may_call_again(resend.delivery, self._routes.policy.retry, resend.answered_at)
            and self._refusal(resend) is None
        )

    def _on_record(self, resends: Sequence[RetryWork], route: Route) -> list[RetryWork]:
        return on_record(
            resends,
            route,
            put=put_on_record,
            kept=self._kept,
            may=lambda resend: self._refusal(resend) is None,
        )

    def _kept(self, resends: Sequence[RetryWork]) -> list[bool]:
        """Returns per delivery whether its next call is on record; none while the ledger is away."""
        try:
            return self._reroute([resend.delivery for resend in resends])
        except LedgerUnavailable:
            return [False] * len(resends)

    def _may_begin(self, resend: RetryWork) -> bool:
        refusal = self._refusal(resend) or self._shut(resend)
        if refusal is None:
            return True
        resend.end = refusal
        self._routes.accounts.release(resend.route.account)
        return False

    def _shut(self, resend: RetryWork) -> NotStarted | None:
        """Returns the end of a delivery whose account was shut since it was chosen: it is given back, for
        the first account that may send it. None if the account is open."""
        accounts, account = self._routes.accounts, resend.route.account
        if self._routes.of(account.name) is None or accounts.still_allowed(account):
            return None
        wait_s = accounts.opens_in_s(resend.delivery, account)
        delay_ms = ceil(wait_s / _STEP_S) * int(_STEP_S * _MS)  # several share a statement
        return NotStarted(Event.GIVEN_BACK, ACCOUNT_SHUT, delay_ms)

    def _refusal(self, resend: RetryWork) -> NotStarted | None:
        """Returns why the delivery must not begin; None if it may. Asks the lease last: it can change while
        a thread sleeps."""
        reason = self._too_late(resend)
        if reason is not None:
            return reason
        if self._permit.wait_valid(resend.term, lambda: self._too_late(resend) is not None):
            # The wait took time. Nothing waits between this check and the first byte.
            return self._too_late(resend)
        return self._too_late(resend) or NotStarted(Event.UNKNOWN, LEASE_LAPSED)

    def _too_late(self, resend: RetryWork) -> NotStarted | None:
        taken, now = resend.taken, self._clock.now_ms()
        if self._stopping:
            return NotStarted(Event.GIVEN_BACK, "stopping")
        if self.paused:
            return NotStarted(Event.GIVEN_BACK, LANE_PAUSED)
        if now >= taken.delivery.expires_at:
            if resend.doubted:  # parked here, the row would lose its doubt
                return NotStarted(Event.UNKNOWN, TTL_IN_DOUBT)
            return NotStarted(Event.TTL, "ttl_in_retry")
        if resend.not_after and now >= resend.not_after:
            return NotStarted(Event.UNKNOWN, WINDOW_OVER)
        return None
