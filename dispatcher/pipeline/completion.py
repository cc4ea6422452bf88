"""Completion after a settle commit: the pre-filter's marks, metrics and trace, then the source.

The order matters: a step may only report what the one before made true. It has a thread of its own, so the
next commit does not wait for Redis. One round trip to Redis serves several commits, since only an ordered
lane's next delivery waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Final

import msgspec

from dispatcher.pipeline.gates import SendGates
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import (
    AlreadyKnown,
    EndedAtClaim,
    Finished,
    GivenUp,
    KafkaRecord,
    Work,
)
from idempotency.ledger import Settlement
from idempotency.payload_cipher import body_digest
from idempotency.prefilter import Prefilter
from message.reasons import DUPLICATE, TTL_AT_INTAKE
from message.states import SETTLED, Event, State, after
from message.vocabulary import Lane
from policy.schema import Guarantee
from sending.runtime.clock import Clock

LINGER_S: Final = 0.02
"""How long a commit waits for others to complete together."""
_AT_ONCE: Final = 1_000
"""Deliveries from which no further commit joins."""
_IDLE_S = 0.5
_AT_INTAKE: Final = (EndedAtClaim, AlreadyKnown)


class SettledBatch(msgspec.Struct, gc=False):
    """One batch after settle."""

    batch: Sequence[Finished]
    pairs: Sequence[tuple[Work, Settlement]] = ()
    written: Sequence[bool] = ()
    """Per pair, whether the ledger took it; empty when the ledger was away for good."""
    seconds: float = 0.0


class CompletionStage:
    """Counts `KafkaRecord.open_deliveries` down and ends the records."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        prefilter: Prefilter,
        *,
        report: WorkerTelemetry,
        clock: Clock,
        on_records: Callable[[list[KafkaRecord]], None],
        gates: SendGates | None = None,
        hurried: frozenset[Lane] = frozenset(),
    ) -> None:
        """`hurried`: ordered lanes, in which the next record waits for a record's end."""
        self.beat = clock.monotonic()
        """Monotonic time of the loop's last round; for the stuck detector."""
        self._pools = pools
        self._prefilter = prefilter
        self._report = report
        self._clock = clock
        self._on_records = on_records
        self._gates = gates
        self._hurried = hurried
        self._queue: SimpleQueue[SettledBatch] = SimpleQueue()
        self._hurry = threading.Event()
        self._stopping = False

    def put(self, settled: SettledBatch) -> None:
        """Takes a batch from a settle stage; from any thread."""
        self._queue.put(settled)
        if self._hurried and any(i.record.assignment.lane in self._hurried for i in settled.batch):
            self._hurry.set()

    def stop(self) -> None:
        """Ends `run` once the queue is empty; idempotent."""
        self._stopping = True
        self._hurry.set()
        self._queue.put(SettledBatch(()))  # wakes the thread

    def run(self) -> None:
        """Works until `stop`."""
        while True:
            several = self._gather()
            self.beat = self._clock.monotonic()
            if several:
                self.follow(*several)
            elif self._stopping:
                return

    def follow(self, *several: SettledBatch) -> None:
        """Completes these batches."""
        at_intake = [_ended(settled) for settled in several]
        pairs = list(zip(several, at_intake, strict=True))
        marks = [mark for settled, ended in pairs for mark in _marks(settled, ended)]
        if marks:
            self._prefilter.mark(marks)
        for settled, ended in pairs:
            if self._gates is not None:
                self._gates.settled(*_ends(settled))
            self._report_batch(settled, ended)
        self._complete([item for settled in several for item in settled.batch])

    def _gather(self) -> list[SettledBatch]:
        several: list[SettledBatch] = []
        try:
            several.append(self._queue.get(timeout=0 if self._stopping else _IDLE_S))
            self._hurry.wait(LINGER_S)
            if not self._stopping:
                self._hurry.clear()  # before the queue is read: `put` queues its batch before it sets it
            gathered = len(several[0].batch)
            while gathered < _AT_ONCE:
                several.append(self._queue.get_nowait())
                gathered += len(several[-1].batch)
        except Empty:
            pass
        return several

    def _report_batch(self, settled: SettledBatch, ended: Sequence[Work]) -> None:
        if settled.written:
            self._report.settled(settled.pairs, settled.written, settled.seconds)
        self._report.ended(ended)

    def _complete(self, batch: Sequence[Finished]) -> None:
        """Counts deliveries down; a record without open ones goes back to the source."""
        done = []
        for item in batch:
            record = item.record
            if isinstance(item, Work):
                if self._passed_at_hand_over(item):
                    continue
                if isinstance(item.end, GivenUp):
                    record.given_back = True
            record.open_deliveries -= 1
            if record.open_deliveries == 0:
                record.assignment.ended += 1
                done.append(record)
        if done:
            self._on_records(done)

    def _passed_at_hand_over(self, work: Work) -> bool:
        return not self._pools[work.delivery.lane].leased and work.reached_lane


def _ended(settled: SettledBatch) -> list[Work]:
    """Returns the deliveries that ended at intake."""
    return [w for w in settled.batch if type(w) is Work and type(w.end) in _AT_INTAKE]


def _marks(settled: SettledBatch, ended: Sequence[Work]) -> list[tuple[str, bytes]]:
    """Returns the marks of deliveries that this commit settled, or that were found settled."""
    earned = [
        _mark(work)
        for (work, settlement), ours in zip(settled.pairs, settled.written, strict=False)
        if ours and after(State.IN_FLIGHT, settlement.event) in SETTLED
    ]
    return earned + [_mark(work) for work in ended if _is_markable(work)]


def _ends(settled: SettledBatch) -> tuple[list[Work], list[Event | None]]:
    """Returns the gated deliveries with their events in the ledger; None for `best_effort` ones."""
    ends: list[tuple[Work, Event | None]] = [
        (work, settlement.event)
        for (work, settlement), ours in zip(settled.pairs, settled.written, strict=False)
        if ours and work.terms is not None and work.terms.gated
    ]
    ends += [(w, None) for w in settled.batch if type(w) is Work and _kept_by_none(w)]
    return [work for work, _ in ends], [event for _, event in ends]


def _kept_by_none(work: Work) -> bool:
    terms = work.terms
    if terms is None or not terms.gated or not work.reached_lane:
        return False
    return terms.policy.guarantee is Guarantee.BEST_EFFORT


def _is_markable(work: Work) -> bool:
    """Returns whether the ledger has it settled and Redis did not: Redis was flushed, or never had it."""
    end = work.end
    if not isinstance(end, EndedAtClaim | AlreadyKnown):
        return False
    return end.reason in (DUPLICATE, TTL_AT_INTAKE) and end.state in SETTLED


def _mark(work: Work) -> tuple[str, bytes]:
    delivery = work.delivery
    return delivery.key, delivery.body_digest or body_digest(delivery.payload)
