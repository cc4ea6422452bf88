"""Intake: from polled records to claimed deliveries in the lanes' queues, just in time.

It claims only what a lane has room for, so a slow lane leaves its records unclaimed in a bounded
backlog and holds up nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import TypeVar

import structlog

from dispatcher.backlog import Backlog, backlog_for
from dispatcher.clock import Clock
from dispatcher.gates import Gate
from dispatcher.lanes import Pool
from dispatcher.report import Report
from dispatcher.work import Finished, HandOver, Record, Work
from idempotency.ledger import LedgerUnavailable
from message.delivery import Origin, deliveries_of
from policy.schema import Guarantee

log = structlog.get_logger(__name__)

CLAIM_BATCH = 500
"""Deliveries in one claim statement, at most."""
_IDLE_S = 0.5
T = TypeVar("T")


class Intake:
    """Owns the backlogs of its lanes. The source puts records in, settle says which ended."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        gate: Gate,
        *,
        report: Report,
        clock: Clock,
        finished: SimpleQueue[Finished],
        policy_version: str,
        on_dropped: Callable[[list[Record]], None],
    ) -> None:
        self.beat = clock.monotonic()
        """When the loop last went round; for the stuck detector."""
        self._pools = pools
        self._gate = gate
        self._report = report
        self._clock = clock
        self._finished = finished
        self._policy_version = policy_version
        self._on_dropped = on_dropped
        self._inbox: SimpleQueue[list[Record]] = SimpleQueue()
        self._ended: SimpleQueue[Record] = SimpleQueue()
        self._wake = threading.Event()
        self._stopping = False
        self._backlogs: dict[str, Backlog] = {
            name: backlog_for(pool.policy.ordering, self._expand) for name, pool in pools.items()
        }
        self._turn = 0

    def put(self, records: list[Record]) -> None:
        """Records from the source."""
        self._inbox.put(records)
        self._wake.set()

    def room_made(self) -> None:
        """Settle freed places in some lane."""
        self._wake.set()

    def record_ended(self, record: Record) -> None:
        """Settle saw the last delivery of a record end; lets an ordered lane's next one go."""
        self._ended.put(record)
        self._wake.set()

    def stop(self) -> None:
        """Take nothing more; idempotent."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Until `stop`; then what is not claimed is forgotten: its offsets never passed."""
        while not self._stopping:
            self.run_once()
        self._abandon()

    def run_once(self) -> None:
        """One round: receive, take what fits, claim, hand over."""
        self._wake.wait(_IDLE_S)
        self._wake.clear()
        self.beat = self._clock.monotonic()
        self._receive()
        while not self._stopping and (works := self._take_what_fits()):
            self._admit(works)
            self._receive()
            self.beat = self._clock.monotonic()

    def _receive(self) -> None:
        for record in _drain(self._ended):
            self._backlogs[record.assignment.lane.name].done(record)
        for records in _drain(self._inbox):
            for record in records:
                self._backlogs[record.assignment.lane.name].add(record)

    def _take_what_fits(self) -> list[Work]:
        """Deliveries from every lane that has room; lanes take turns at going first."""
        taken: list[Work] = []
        names = list(self._backlogs)
        self._turn = (self._turn + 1) % max(len(names), 1)
        for name in names[self._turn :] + names[: self._turn]:
            backlog = self._backlogs[name]
            if backlog:
                room = min(self._pools[name].room, CLAIM_BATCH - len(taken))
                taken.extend(backlog.take(room))
                self._pass_over(backlog.dropped())
        return taken

    def _pass_over(self, records: list[Record]) -> None:
        """Their partition is leaving: whoever gets it reads them again."""
        for record in records:
            record.given_back = True
        if records:
            self._on_dropped(records)

    def _admit(self, works: list[Work]) -> None:
        for work in works:
            self._pools[work.delivery.lane].taken += 1
        try:
            to_send, ended = self._gate.admit(works)
        except LedgerUnavailable:
            self._give_up(works)
            return
        self._report.claimed(to_send)
        for work in to_send:
            pool = self._pools[work.delivery.lane]
            if pool.policy.guarantee is Guarantee.BEST_EFFORT:
                self._finished.put(HandOver(work.record))
            pool.put(work)
        for work in ended:
            self._finished.put(work)

    def _expand(self, record: Record) -> list[Work]:
        """A record's deliveries; those that share a receiver count once."""
        assignment, notification = record.assignment, record.notification
        policy = self._pools[assignment.lane.name].policy
        deliveries = deliveries_of(
            notification,
            record.payload,
            expires_at=notification.created_at + policy.lifetime_ms(notification.ttl_ms),
            policy_version=self._policy_version,
            origin=Origin(assignment.topic, assignment.partition, record.offset),
        )
        return [Work(delivery, record) for delivery in deliveries]

    def _abandon(self) -> None:
        self._receive()
        for backlog in self._backlogs.values():
            works = backlog.abandon()
            for work in works:
                self._pools[work.delivery.lane].taken += 1
            self._give_up(works)

    def _give_up(self, works: list[Work]) -> None:
        """Unclaimed and staying so: settle only keeps the record's offset from passing."""
        for work in works:
            work.left = True
            self._finished.put(work)


def _drain(queue: SimpleQueue[T]) -> list[T]:
    """Everything in the queue now."""
    items: list[T] = []
    try:
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items
