"""Resending: takes what is due, calls the provider once more, and writes what became of it.

    take      rows of one lane, as many as its few threads and its rate have room for ─▶ IN_FLIGHT
    hold back what its provider would drop in silence waits in the ledger instead
    group     recovery/retry/batching.py
    keep      account, call key and digest go into the ledger, before any call
    call      recovery/retry/pool.py
    settle    outcomes in one transaction, which wakes the next of each line; the lane is looked at at once

Rows that are taken and whose outcome never comes are swept with the life that took them, as a worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import structlog

from idempotency.ledger import Ledger, LedgerUnavailable, Settlement
from idempotency.lines import line_ended
from idempotency.recovery.contract import DueDelivery, DueQuery, RecordedCall, RecoveryStore
from message.delivery import Delivery
from message.ids import new_token
from message.outcomes import NotSent, Rejected
from message.states import Event
from policy.quiet_hours import quiet_ms
from policy.schema import Guarantee, LanePolicy, Ordering
from recovery.retry.batching import calls_of
from recovery.retry.pace import RetryPace
from recovery.retry.pool import WINDOW_OVER, RetryPool, RetryWork
from recovery.retry.retry_lane import RetryLane
from recovery.telemetry import RecoveryTelemetry
from recovery.unknown.decisions import REFUSED, REPLAY
from sending.batching import put_on_record
from sending.endings import NotStarted
from sending.lane_routes import Route
from sending.receiver_marks import NEVER_SENT
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage
from sending.settlement import after_call

log = structlog.get_logger(__name__)
SETTLE_BATCH: Final = 200
NO_ACCOUNT: Final = "no_account"
NO_TEMPLATE: Final = "template_error"
_IDLE_S: Final = 0.5
_STEP_MS: Final = 250
"""What waits for an account waits up to so much longer."""
_LOOKS: Final = 50
"""One after the other while nothing that was taken may be sent now: it must not hide what may."""

Render = Callable[[Delivery], bool]
"""See `recovery.unknown.resolver.Render`."""


class LeaseView(Protocol):
    """The lease's number (sending/runtime/lease.py)."""

    @property
    def term(self) -> int:
        """A lapse begins a new one."""
        ...

    @property
    def valid(self) -> bool:
        """Whether a send may begin."""
        ...


class RetryStage:
    """`run_once` may be called by many threads; `settle_forever` is one thread's."""

    def __init__(
        self,
        ledger: Ledger,
        rows: RecoveryStore,
        routes: Mapping[str, RetryLane],
        callers: Mapping[str, RetryPool],
        releasing: Mapping[str, RetryPool],
        *,
        owner: str,
        lease: LeaseView,
        pace: RetryPace,
        release: RetryPace,
        render: Render,
        report: RecoveryTelemetry,
        clock: Clock,
        outage: Outage,
        finished: SimpleQueue[RetryWork | None],
        delays: Callable[[Sequence[tuple[str, str]]], list[int]] = lambda batch: [0] * len(batch),
        give_back: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None,
        on_woken: Callable[[str], None] = lambda _: None,
        on_sending: Callable[[], None] = lambda: None,
    ) -> None:
        """`callers` and `pace` are for what was called before; `releasing` and `release` for what was not:
        it waited for quiet hours to end, a receiver's limit or its turn.
        `delays`: per (account, receiver), for how many milliseconds its provider's limit holds it.
        `give_back` gets (lane, key) of each delivery that surely was not sent
        (dispatcher/pipeline/gates.py). `on_woken` is told the lane in which the head of a line ended: the
        next of it may be due. `on_sending` is called before what was taken is sent."""
        self.beat = clock.monotonic()
        """When settling last went round; for the stuck detector."""
        self._ledger = ledger
        self._rows = rows
        self._routes = routes
        self._owner = owner
        self._lease = lease
        self._kinds = {False: (callers, pace), True: (releasing, release)}
        self._render = render
        self._report = report
        self._clock = clock
        self._outage = outage
        self._finished = finished
        self._delays = delays
        self._give_back = give_back
        self._on_woken = on_woken
        self._on_sending = on_sending

    # ---- taking ------------------------------------------------------------------------------

    def run_once(self, lane: str) -> int | None:
        """Take what is due in the lane and hand it to its threads: how many, None where there was no room
        for some. Raises LedgerError."""
        counts = [self._run(lane, first=first) for first in self._kinds]
        return sum(filter(None, counts)) or (None if None in counts else 0)

    def _run(self, lane: str, *, first: bool) -> int | None:
        """As `run_once`, of one kind."""
        of_lane, pace = self._kinds[first]
        callers, routes = of_lane[lane], self._routes[lane]
        room = min(max(callers.room, 0), routes.accounts.room()) if self._lease.valid else 0
        room = pace.take(lane, room) if room else 0
        if not room:
            return None
        callers.take_up(room)
        calls: list[list[RetryWork]] = []
        try:
            for _ in range(_LOOKS):
                seen, calls = self._take(routes, room, first=first)
                if calls or not seen:
                    break
        finally:
            begun = sum(map(len, calls))
            callers.take_up(begun - room)
            pace.used(lane, room, begun)
        if calls:
            self._on_sending()
        for call in calls:
            callers.put(call)
        return begun

    def _take(
        self, routes: RetryLane, room: int, *, first: bool
    ) -> tuple[int, list[list[RetryWork]]]:
        """One look: how many rows were taken, and the calls to be made; the others wait again or ended."""
        policy, term, token = routes.policy, self._lease.term, new_token()
        ordered = policy.ordering is Ordering.KEY
        ask = DueQuery(routes.lane.name, policy.retry.attempts, ordered, room, first)
        # The same token until it is answered: rows taken by a try whose reply was lost are found again.
        taking = self._outage.until_available(
            "take", partial(self._rows.take, ask, self._owner, token)
        )
        self._report.ended(taking.ended)
        if ordered and taking.ended:
            self._on_woken(ask.lane)
        self._give_back([(row.lane, row.key) for row in taking.ended if not row.doubted])
        if quiet := quiet_ms(policy.quiet_hours, self._clock.now_ms()):
            if taking.taken:
                self._put_off(taking.taken, quiet)
            return len(taking.taken), []
        ready: list[RetryWork] = []
        waiting: dict[int, list[DueDelivery]] = {}
        for taken in taking.taken:
            found = self._resend(taken, routes, term)
            if isinstance(found, RetryWork):
                found.first = first
                ready.append(found)
            elif isinstance(found, Settlement):
                self._end(found, doubted=taken.doubted_since is not None)
            else:  # several share a statement
                waiting.setdefault(found + -found % _STEP_MS, []).append(taken)
        for delay_ms, some in waiting.items():
            self._put_off(some, delay_ms)
        calls = calls_of(self._held_back(ready, routes), routes.most)
        for call in calls:
            put_on_record(call, call[0].delivery.call_key)
        return len(taking.taken), self._kept(calls)

    def _put_off(self, taken: Sequence[DueDelivery], delay_ms: int) -> None:
        """They are due again later, their attempt not counted."""
        self._outage.until_available("settle", partial(self._rows.give_back, taken, delay_ms))

    def _held_back(self, resends: Sequence[RetryWork], routes: RetryLane) -> list[RetryWork]:
        """Without those that their provider would drop in silence: these wait in the ledger."""
        pairs = [(resend.route.account.name, resend.delivery.receiver) for resend in resends]
        delays = self._delays(pairs)
        for resend, delay_ms in zip(resends, delays, strict=True):
            if delay_ms:
                routes.accounts.release(resend.route.account)
                self._put_off([resend.taken], delay_ms)
        return [r for r, delay_ms in zip(resends, delays, strict=True) if not delay_ms]

    def _resend(
        self, taken: DueDelivery, routes: RetryLane, term: int
    ) -> RetryWork | Settlement | int:
        """The call to be made; or why there is none; or for how many milliseconds nobody may make it."""
        delivery, same = taken.delivery, taken.reason == REPLAY
        delivery.policy_version = routes.version
        bound = routes.bound_to(delivery, same=same)
        if bound is not None and routes.of(bound) is None:
            return Settlement(delivery, Event.UNKNOWN if same else Event.BUDGET_SPENT, NO_ACCOUNT)
        if not self._render(delivery):
            return Settlement(delivery, Event.BUDGET_SPENT, NO_TEMPLATE)
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

    def _end(self, settlement: Settlement, *, doubted: bool) -> None:
        (ours,) = self._settled([settlement])
        self._report.unsendable(settlement)
        if ours and settlement.event in NEVER_SENT and not doubted:
            self._give_back([(settlement.delivery.lane, settlement.delivery.key)])

    def _kept(self, calls: list[list[RetryWork]]) -> list[list[RetryWork]]:
        """The calls that are in the ledger now; a row that was swept meanwhile is not ours to send."""
        if not calls:
            return []
        made = [_called(resend.delivery) for call in calls for resend in call]
        answers = iter(self._outage.until_available("keep", partial(self._rows.keep, made)))
        ours = ([r for r in call if self._ours(r, next(answers))] for call in calls)
        return [call for call in ours if call]

    def _ours(self, resend: RetryWork, kept: bool) -> bool:
        if not kept:
            self._routes[resend.delivery.lane].accounts.release(resend.route.account)
        return kept

    # ---- settling ----------------------------------------------------------------------------

    def settle_forever(self) -> None:
        """Until None comes, after which nothing is put any more."""
        while True:
            batch, last = self._gather()
            self.beat = self._clock.monotonic()
            if batch:
                self.settle(batch)
            if last:
                return

    def settle(self, batch: Sequence[RetryWork]) -> None:
        """One batch: written and told; then its places are free."""
        given_back: dict[int, list[DueDelivery]] = {}
        pairs = []
        for resend in batch:
            if isinstance(resend.end, NotStarted) and resend.end.event is Event.GIVEN_BACK:
                given_back.setdefault(resend.end.delay_ms, []).append(resend.taken)
            else:
                pairs.append((resend, settled(resend, self._policy(resend))))
        try:
            self._write(pairs, given_back)
        except LedgerUnavailable:
            log.error("outcomes_left", rows=len(batch), what="they become UNKNOWN with this life")
        for resend in batch:
            of_lane, _ = self._kinds[resend.first]
            of_lane[resend.taken.delivery.lane].take_up(-1)

    def _write(
        self,
        pairs: Sequence[tuple[RetryWork, Settlement]],
        given_back: Mapping[int, Sequence[DueDelivery]],
    ) -> None:
        for delay_ms, taken in given_back.items():
            self._put_off(taken, delay_ms)
        if pairs:
            settlements = [settlement for _, settlement in pairs]
            written = self._settled(settlements)
            self._report.resent(pairs, written)
            self._tell_gates(pairs, written)

    def _tell_gates(
        self, pairs: Sequence[tuple[RetryWork, Settlement]], written: Sequence[bool]
    ) -> None:
        """What ended as surely not sent gives back what the gates noted of it."""
        self._give_back(
            [
                (settlement.delivery.lane, settlement.delivery.key)
                for (resend, settlement), ours in zip(pairs, written, strict=True)
                if ours and settlement.event in NEVER_SENT and not resend.doubted
            ]
        )

    def _settled(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write outcomes; where a head ended, the next of its line is looked for at once."""
        ordered = self._ordered()
        settle = partial(self._ledger.settle, settlements, ordered)
        written = self._outage.until_available("settle", settle)
        for lane in {line.lane for s in settlements if (line := line_ended(s, ordered))}:
            self._on_woken(lane)
        return written

    def keeps_order(self, lane: str) -> bool:
        """Whether the lane's deliveries of one key follow one another."""
        return self._routes[lane].policy.ordering is Ordering.KEY

    def _ordered(self) -> frozenset[str]:
        return frozenset(lane for lane in self._routes if self.keeps_order(lane))

    def _policy(self, resend: RetryWork) -> LanePolicy:
        return self._routes[resend.taken.delivery.lane].policy

    def _gather(self) -> tuple[list[RetryWork], bool]:
        batch: list[RetryWork] = []
        try:
            one = self._finished.get(timeout=_IDLE_S)
            while one is not None:
                batch.append(one)
                if len(batch) == SETTLE_BATCH:
                    return batch, False
                one = self._finished.get_nowait()
        except Empty:
            return batch, False
        return batch, True


def settled(resend: RetryWork, policy: LanePolicy) -> Settlement:
    """How one resend ends in the ledger.

    A definite non-send of this call says nothing of an earlier one in doubt: that stays in doubt. So does
    one that is refused now: who left in between, or is blocked since, may have got the first.
    """
    delivery, end = resend.taken.delivery, resend.end
    if isinstance(end, NotStarted):
        return Settlement(delivery, end.event, end.reason)
    if end is None:
        return Settlement(delivery, Event.UNKNOWN)
    if resend.doubted and isinstance(end, NotSent):
        return Settlement(delivery, Event.UNKNOWN, end.code)
    if resend.doubted and isinstance(end, Rejected):
        return Settlement(delivery, Event.UNKNOWN, f"{REFUSED}:{end.code}")
    return after_call(delivery, end, resend.answered_at, policy)


def served(policy: LanePolicy) -> bool:
    """Whether the ledger, and so recovery, answers for a lane."""
    return policy.guarantee is not Guarantee.BEST_EFFORT


def _unfit(taken: DueDelivery, route: Route, *, same: bool) -> Settlement | None:
    """Why the call must not be made through this account: it is no repeat, or could never be sent."""
    delivery = taken.delivery
    if same and route.digest([delivery]) != taken.call_digest:
        return Settlement(delivery, Event.UNKNOWN, WINDOW_OVER)
    code = route.channel.refusal(route.account, delivery).partition(": ")[0]
    if code and taken.doubted_since is not None:
        return Settlement(delivery, Event.UNKNOWN, code)
    return Settlement(delivery, Event.REJECTED, code) if code else None


def _called(d: Delivery) -> RecordedCall:
    digest, version = d.call_digest or None, d.policy_version or None
    return RecordedCall(d.key, d.day, d.token, d.account, d.call_key, digest, version)
