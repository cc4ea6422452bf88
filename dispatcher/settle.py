"""Settle: group-commits outcomes, then frees lane room, then Redis, then the trace, then the source.

In this order, because each step may only say what the one before made true. While one commit is
under way the next batch gathers, so batches grow with the load by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

import structlog

from dispatcher.clock import Clock
from dispatcher.decide import settlement_of
from dispatcher.gates import Outage
from dispatcher.lanes import Pool
from dispatcher.report import Report
from dispatcher.work import Finished, Record, Work
from idempotency.ledger import Ledger, LedgerUnavailable, Settlement
from idempotency.payloads import body_digest
from idempotency.prefilter import Prefilter
from message.states import SETTLED, Event, State, after
from policy.schema import Guarantee

log = structlog.get_logger(__name__)

SETTLE_BATCH = 1_000
"""Outcomes in one statement, at most."""
_IDLE_S = 0.5


class Settle:
    """Owns `Record.open_deliveries`: it alone says when a record is done."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        ledger: Ledger,
        prefilter: Prefilter,
        *,
        outage: Outage,
        report: Report,
        clock: Clock,
        finished: SimpleQueue[Finished],
        on_records: Callable[[list[Record]], None],
        on_room: Callable[[], None],
    ) -> None:
        self.beat = clock.monotonic()
        """When the loop last went round; for the stuck detector."""
        self.abandoned = 0
        """Outcomes that could not be written before the worker had to go."""
        self._pools = pools
        self._ledger = ledger
        self._prefilter = prefilter
        self._outage = outage
        self._report = report
        self._clock = clock
        self._finished = finished
        self._on_records = on_records
        self._on_room = on_room
        self._stopping = False

    def stop(self) -> None:
        """End once the queue is empty; idempotent."""
        self._stopping = True

    def run(self) -> None:
        """Until `stop` and nothing is left."""
        while True:
            batch = self._gather()
            self.beat = self._clock.monotonic()
            if batch:
                self.settle(batch)
            elif self._stopping:
                return

    def settle(self, batch: Sequence[Finished]) -> None:
        """One batch, all the way."""
        works = [item for item in batch if isinstance(item, Work)]
        marks = self._write(works)
        self._free_room(works)
        if marks:
            self._prefilter.mark(marks)
        self._complete(batch)

    def _gather(self) -> list[Finished]:
        batch: list[Finished] = []
        try:
            batch.append(self._finished.get(timeout=_IDLE_S))
            while len(batch) < SETTLE_BATCH:
                batch.append(self._finished.get_nowait())
        except Empty:
            pass
        return batch

    def _write(self, works: Sequence[Work]) -> list[tuple[str, bytes]]:
        """Record what ended; returns the pre-filter marks it earned."""
        pairs = [(work, s) for work in works if (s := self._settlement(work)) is not None]
        ended = [work for work in works if work.standing is not None]
        marks = [_mark(work) for work in ended if _is_markable(work)]
        if pairs:
            marks += self._commit(pairs)
        self._report.ended(ended)
        return marks

    def _settlement(self, work: Work) -> Settlement | None:
        policy = self._pools[work.delivery.lane].policy
        settlement = settlement_of(work, policy)
        if settlement is not None and policy.guarantee is Guarantee.BEST_EFFORT:
            self._report.best_effort(work, settlement)
            return None
        return settlement

    def _commit(self, pairs: Sequence[tuple[Work, Settlement]]) -> list[tuple[str, bytes]]:
        settlements = [settlement for _, settlement in pairs]
        begun = self._clock.monotonic()
        try:
            written = self._outage.persist("settle", lambda: self._ledger.settle(settlements))
        except LedgerUnavailable:
            return self._leave(pairs)
        self._report.settled(pairs, written, self._clock.monotonic() - begun)
        marks = []
        for (work, settlement), ours in zip(pairs, written, strict=True):
            if settlement.event is Event.GIVEN_BACK:
                work.record.given_back = True
            elif ours and after(State.IN_FLIGHT, settlement.event) in SETTLED:
                marks.append(_mark(work))
        return marks

    def _leave(self, pairs: Sequence[tuple[Work, Settlement]]) -> list[tuple[str, bytes]]:
        """The worker must go and the ledger is away: the rows stay IN_FLIGHT and become UNKNOWN."""
        self.abandoned += len(pairs)
        for work, _ in pairs:
            work.record.given_back = True
        return []

    def _free_room(self, works: Sequence[Work]) -> None:
        for lane, count in Counter(work.delivery.lane for work in works).items():
            self._pools[lane].returned += count
        self._on_room()

    def _complete(self, batch: Sequence[Finished]) -> None:
        """Count deliveries down; a record whose last one ended goes back to the source."""
        done = []
        for item in batch:
            record = item.record
            if isinstance(item, Work):
                if self._passed_at_hand_over(item):
                    continue
                if item.reason == "abandoned":
                    record.given_back = True
            record.open_deliveries -= 1
            if record.open_deliveries == 0:
                record.assignment.ended += 1
                done.append(record)
        if done:
            self._on_records(done)

    def _passed_at_hand_over(self, work: Work) -> bool:
        guarantee = self._pools[work.delivery.lane].policy.guarantee
        sent = work.outcome is not None or work.event is not None
        return guarantee is Guarantee.BEST_EFFORT and sent


def _is_markable(work: Work) -> bool:
    """Found settled in the ledger, not in Redis: Redis was flushed, or never heard of it."""
    return work.reason in ("duplicate", "ttl_at_intake") and work.standing in SETTLED


def _mark(work: Work) -> tuple[str, bytes]:
    return work.delivery.key, body_digest(work.delivery.payload)
