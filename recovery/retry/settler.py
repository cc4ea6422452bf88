"""Settling of recovery's calls: outcomes go to the ledger in one transaction, which wakes the next of each
line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import structlog

from idempotency.ledger import Ledger, LedgerUnavailable, Settlement
from idempotency.lines import line_ended
from idempotency.recovery.contract import DueDelivery, RecoveryStore
from message.outcomes import NotSent, Rejected
from message.states import Event
from policy.schema import LanePolicy, Ordering
from recovery.retry.pace import RetryPace
from recovery.retry.pool import RetryPool, RetryWork
from recovery.retry.retry_lane import RetryLane
from recovery.telemetry import RecoveryTelemetry
from recovery.unknown.decisions import REFUSED
from sending.endings import NotStarted
from sending.receiver_marks import NEVER_SENT
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage
from sending.settlement import after_call

log = structlog.get_logger(__name__)
SETTLE_BATCH: Final = 200
LINGER_S: Final = 0.01
"""Time that a commit waits for further outcomes while more is under way: each commit is a sync of the
database's disk, which live traffic needs too."""
_IDLE_S: Final = 0.5


class RetryKind(NamedTuple):
    """The pools and the pace of deliveries of one kind, by lane."""

    pools: Mapping[str, RetryPool]
    pace: RetryPace


class RetryContext(NamedTuple):
    """The parts that taking and settling share."""

    ledger: Ledger
    rows: RecoveryStore
    lanes: Mapping[str, RetryLane]
    retries: RetryKind
    """Of deliveries that were called before."""
    releases: RetryKind
    """Of deliveries that were not: they waited for quiet hours to end, a receiver's limit or their turn."""
    report: RecoveryTelemetry
    clock: Clock
    outage: Outage

    def kind(self, *, first: bool) -> RetryKind:
        """Returns the pools and pace of first calls, or of all others."""
        return self.releases if first else self.retries


class RetrySettler:
    """`settle_forever` is one thread's; the rest may be called by several."""

    def __init__(
        self,
        context: RetryContext,
        finished: SimpleQueue[RetryWork | None],
        *,
        give_back: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None,
        on_woken: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`give_back` gets (lane, key) of each delivery that surely was not sent
        (dispatcher/pipeline/gates.py). `on_woken` gets the lane in which the head of a line ended: the next
        of it may be due."""
        self.beat = context.clock.monotonic()
        """When settling last went round; for the stuck detector."""
        self._context = context
        self._finished = finished
        self.give_back = give_back
        self.on_woken = on_woken

    def settle_forever(self) -> None:
        """Settles until None comes, the last item of the queue."""
        while True:
            batch, last = self._gather()
            self.beat = self._context.clock.monotonic()
            if batch:
                self.settle(batch)
            if last:
                return

    def settle(self, batch: Sequence[RetryWork]) -> None:
        """Writes and reports one batch, then frees its places."""
        given_back: dict[int, list[DueDelivery]] = {}
        pairs = []
        for resend in batch:
            if isinstance(resend.end, NotStarted) and resend.end.event is Event.GIVEN_BACK:
                given_back.setdefault(resend.end.delay_ms, []).append(resend.taken)
            else:
                pairs.append((resend, settlement_of(resend, self._policy(resend))))
        try:
            self._write(pairs, given_back)
        except LedgerUnavailable:
            log.error("outcomes_left", rows=len(batch), what="they become UNKNOWN with this life")
        for resend in batch:
            pools = self._context.kind(first=resend.first).pools
            pools[resend.taken.delivery.lane].take_up(-1)

    def _write(
        self,
        pairs: Sequence[tuple[RetryWork, Settlement]],
        given_back: Mapping[int, Sequence[DueDelivery]],
    ) -> None:
        for delay_ms, taken in given_back.items():
            self.put_off(taken, delay_ms)
        if pairs:
            settlements = [settlement for _, settlement in pairs]
            written = self.put_in_ledger(settlements)
            self._context.report.resent(pairs, written)
            self._tell_gates(pairs, written)

    def _tell_gates(
        self, pairs: Sequence[tuple[RetryWork, Settlement]], written: Sequence[bool]
    ) -> None:
        """Gives back the gates' marks of deliveries that surely were not sent."""
        self.give_back(
            [
                (settlement.delivery.lane, settlement.delivery.key)
                for (resend, settlement), ours in zip(pairs, written, strict=True)
                if ours and settlement.event in NEVER_SENT and not resend.doubted
            ]
        )

    def put_in_ledger(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Writes outcomes; where a head ended, prompts a look for the next of its line."""
        ordered = self._ordered()
        settle = partial(self._context.ledger.settle, settlements, ordered)
        written = self._context.outage.until_available("settle", settle)
        for lane in {line.lane for s in settlements if (line := line_ended(s, ordered))}:
            self.on_woken(lane)
        return written

    def keeps_order(self, lane: str) -> bool:
        """Returns whether the lane sends deliveries of one key in order."""
        return self._context.lanes[lane].policy.ordering is Ordering.KEY

    def _ordered(self) -> frozenset[str]:
        return frozenset(lane for lane in self._context.lanes if self.keeps_order(lane))

    def _policy(self, resend: RetryWork) -> LanePolicy:
        return self._context.lanes[resend.taken.delivery.lane].policy

    def _gather(self) -> tuple[list[RetryWork], bool]:
        """Returns what ended since the last commit, and whether the queue's last item was taken. Where more
        is under way, waits for a moment: retries then share a commit."""
        batch: list[RetryWork] = []
        try:
            last = self._collect(batch, self._finished.get(timeout=_IDLE_S))
            if not last and len(batch) < self._under_way():
                time.sleep(LINGER_S)
                last = self._collect(batch, self._finished.get_nowait())
        except Empty:
            return batch, False
        return batch, last

    def _collect(self, batch: list[RetryWork], one: RetryWork | None) -> bool:
        """Adds the item and those queued behind it. Returns whether the last item was among them."""
        while one is not None:
            batch.append(one)
            if len(batch) >= SETTLE_BATCH:
                return False
            try:
                one = self._finished.get_nowait()
            except Empty:
                return False
        return True

    def _under_way(self) -> int:
        """Returns the deliveries that hold places of the pools."""
        context = self._context
        kinds = (context.retries, context.releases)
        return sum(pool.unsettled for kind in kinds for pool in kind.pools.values())

    def put_off(self, taken: Sequence[DueDelivery], delay_ms: int) -> None:
        """Gives rows back to be due later, without a counted attempt."""
        if not taken:
            return
        give_back = partial(self._context.rows.give_back, taken, delay_ms)
        self._context.outage.until_available("settle", give_back)

    def end_unsent(self, settlement: Settlement, *, doubted: bool) -> None:
        """Writes the end of a delivery that was not called for."""
        (ours,) = self.put_in_ledger([settlement])
        self._context.report.unsendable(settlement, written=ours)
        if ours and settlement.event in NEVER_SENT and not doubted:
            self.give_back([(settlement.delivery.lane, settlement.delivery.key)])


def settlement_of(resend: RetryWork, policy: LanePolicy) -> Settlement:
    """Returns one retry's settlement. A non-send or a refusal of this call is no evidence about an earlier
    call in doubt, which stays in doubt: the receiver may have been blocked in between."""
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
