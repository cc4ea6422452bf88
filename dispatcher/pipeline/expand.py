"""Expand: turns polled records into deliveries that are worth claiming.

It expands records, renders their templates and looks them up in Redis, a batch at a time. It works a little
ahead of the lanes' room, so the round trip takes no place in a lane. A delivery that ends here is known to
be settled; the ledger would decide the same. `dispatcher.pipeline.intake` claims.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from dispatcher.pipeline.backlog import Backlog, backlog_for
from dispatcher.pipeline.claims import ClaimStrategy
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import GIVEN_UP, SEND, Finished, KafkaRecord, Work, ended_by
from message.delivery import Origin, Rendered, deliveries_of
from message.envelope import Notification
from sending.runtime.clock import Clock
from sending.template_renderer import TemplateRejected

SCREEN_BATCH = 500
"""Most deliveries in one look-up in Redis."""
AHEAD: Final = 2
"""Lane-fulls that are looked up before there is room: one is claimed while Redis answers for the other."""
_IDLE_S = 0.5
T = TypeVar("T")


class Renderer(Protocol):
    """Renders the templates of our own."""

    def __call__(self, notification: Notification) -> Rendered | None:
        """Returns the rendered template; None if it names none of ours. Raises TemplateRejected."""
        ...


class ClaimQueue(Protocol):
    """Takes deliveries for their claim (dispatcher/pipeline/intake.py)."""

    def offer(self, works: list[Work]) -> None:
        """Takes deliveries worth claiming."""
        ...

    def leaving(self) -> None:
        """A partition is being revoked: its unclaimed deliveries are given up."""
        ...

    def waiting(self, lane: str) -> int:
        """Returns how many offered deliveries of a lane are not yet claimed."""
        ...


class ExpandStage:
    """Owns the backlogs of its lanes. The source's thread calls `put`, completion's `record_ended`."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        gate: ClaimStrategy,
        onward: ClaimQueue,
        *,
        clock: Clock,
        finished: SimpleQueue[Finished],
        on_dropped: Callable[[list[KafkaRecord]], None],
        render: Renderer = lambda _: None,
    ) -> None:
        self.beat = clock.monotonic()
        """Monotonic time of the loop's last round; for the stuck detector."""
        self._pools = pools
        self._gate = gate
        self._onward = onward
        self._clock = clock
        self._finished = finished
        self._on_dropped = on_dropped
        self._render = render
        self._inbox: SimpleQueue[list[KafkaRecord]] = SimpleQueue()
        self._ended: SimpleQueue[KafkaRecord] = SimpleQueue()
        self._wake = threading.Event()
        self._stopping = False
        self._leaving = False
        """Set by `leaving` in the source's thread; cleared by `_receive` before it gives up."""
        self._backlogs: dict[str, Backlog] = {
            name: backlog_for(pool.policy.ordering, self._expand) for name, pool in pools.items()
        }
        self._turn = 0

    def put(self, records: list[KafkaRecord]) -> None:
        """Takes records from the source."""
        self._inbox.put(records)
        self._wake.set()

    def wanted(self) -> None:
        """Intake has taken offered deliveries: wakes the loop."""
        self._wake.set()

    def record_ended(self, record: KafkaRecord) -> None:
        """The last delivery of a record ended: an ordered lane's next record may go."""
        self._ended.put(record)
        self._wake.set()

    def leaving(self) -> None:
        """A partition is being revoked: nothing more of it is claimed. The revoke waits for its begun
        records, so their other deliveries are given up at once, even without room for them."""
        self._onward.leaving()
        self._leaving = True
        self._wake.set()

    def stop(self) -> None:
        """Ends `run`; idempotent."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Works until `stop`, then forgets the deliveries not offered: their offsets never passed."""
        while not self._stopping:
            self.run_once()
        self._abandon()

    def run_once(self) -> None:
        """One round: receive, take deliveries that will soon have room, look them up, offer."""
        self._wake.wait(_IDLE_S)
        self._wake.clear()
        self.beat = self._clock.monotonic()
        self._receive()
        while not self._stopping and (works := self._take_ahead()):
            worth, ended = self._gate.screen(works)
            for work in ended:
                self._finished.put(work)
            if worth:
                self._onward.offer(worth)
            self._receive()
            self.beat = self._clock.monotonic()

    def _receive(self) -> None:
        if self._leaving:
            self._leaving = False
            for backlog in self._backlogs.values():
                self._give_up(backlog.leave())
        for record in drained(self._ended):
            self._backlogs[record.assignment.lane_name].done(record)
        for records in drained(self._inbox):
            for record in records:
                self._backlogs[record.assignment.lane_name].add(record)

    def _take_ahead(self) -> list[Work]:
        """Returns deliveries of every lane, up to AHEAD lane-fulls; lanes take turns at going first."""
        taken: list[Work] = []
        names = list(self._backlogs)
        self._turn = (self._turn + 1) % max(len(names), 1)
        for name in names[self._turn :] + names[: self._turn]:
            backlog = self._backlogs[name]
            if backlog:
                ahead = AHEAD * self._pools[name].capacity - self._onward.waiting(name)
                taken.extend(backlog.take(min(ahead, SCREEN_BATCH - len(taken))))
                self._pass_over(backlog.dropped())
        return taken

    def _pass_over(self, records: list[KafkaRecord]) -> None:
        """Drops records of a partition being revoked; its next owner reads them again."""
        for record in records:
            record.given_back = True
        if records:
            self._on_dropped(records)

    def _expand(self, record: KafkaRecord) -> list[Work]:
        """Returns a record's deliveries; a receiver named twice gets one."""
        assignment, notification = record.assignment, record.notification
        terms = self._pools[assignment.lane_name].terms
        deliveries = deliveries_of(
            notification,
            record.payload,
            expires_at=notification.created_at + terms.policy.lifetime_ms(notification.ttl_ms),
            policy_version=terms.version,
            origin=Origin(assignment.topic, assignment.partition, record.offset),
        )
        fault = terms.misfit(notification)
        if notification.template is not None:
            try:
                rendered = self._render(notification)
            except TemplateRejected as exc:
                fault = exc.reason
            else:
                for delivery in deliveries:
                    delivery.rendered = rendered
        intent = SEND if fault is None else ended_by(fault)
        return [Work(delivery, record, intent, terms=terms) for delivery in deliveries]

    def _abandon(self) -> None:
        self._receive()
        for backlog in self._backlogs.values():
            self._give_up(backlog.abandon())

    def _give_up(self, works: list[Work]) -> None:
        """Ends deliveries that were not offered; completion keeps their records' offsets from passing."""
        for work in works:
            work.end = GIVEN_UP
            self._finished.put(work)


def drained(queue: SimpleQueue[T]) -> list[T]:
    """Takes and returns all items that are in the queue now."""
    items: list[T] = []
    try:
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items
