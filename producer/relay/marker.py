"""Waits for Kafka's acknowledgements and marks the rows, in the order in which batches were published."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from hongyan_client.outbox.errors import OutboxAway
from hongyan_client.outbox.publication import EndedBatch, StartedBatch, await_batch
from hongyan_client.outbox.store import OutboxStore
from producer.relay.accepted import AnnounceBatch, no_announcement
from producer.relay.metrics import RelayMetrics
from producer.relay.outage import KafkaOutage

log = structlog.get_logger(__name__)
MOST_BATCHES: Final = 4
"""Published batches that may wait for their marks."""
_AGAIN_S: Final = 0.5


class PublishedBatch(NamedTuple):
    """A batch in the hands of Kafka's client, and the monotonic time until which it is this relay's."""

    started: StartedBatch
    until: float


class RelayMarker:
    """Its own thread calls `run`; the relay's calls `add` and `close`."""

    def __init__(
        self,
        store: OutboxStore,
        outage: KafkaOutage,
        metrics: RelayMetrics,
        wake: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
        announce: AnnounceBatch = no_announcement,
    ) -> None:
        """Sets `wake` after each mark: the next rows of the keys are due. `announce` gets each batch whose
        marks are written."""
        self._store = store
        self._outage = outage
        self._metrics = metrics
        self._wake = wake
        self._monotonic = monotonic
        self._announce = announce
        self._batches: queue.Queue[PublishedBatch | None] = queue.Queue(MOST_BATCHES)
        self._idle = threading.Event()
        self.turn = monotonic()
        """Time of the last round; the marker's thread writes it."""

    def add(self, batch: PublishedBatch) -> None:
        """Takes a batch; waits while too many are unmarked."""
        self._batches.put(batch)

    def close(self, timeout_s: float) -> bool:
        """Lets the thread end after the batches that it has. Returns whether it did in time."""
        self._batches.put(None)
        return self._idle.wait(timeout_s)

    def run(self) -> None:
        """Marks until `close`."""
        while (batch := self.taken()) is not None:
            self.mark(batch)
        self._idle.set()

    def mark(self, batch: PublishedBatch) -> None:
        """Ends one batch. While the database is away it tries until the lease is over; then the rows go out
        again, with the same ids."""
        ended = await_batch(batch.started, batch.until, self._monotonic)
        self._outage.note(len(ended.sent), _repeatable(ended) + len(batch.started.unsent))
        while True:
            self.turn = self._monotonic()
            try:
                self._write(batch, ended)
                break
            except OutboxAway as exc:
                if self._monotonic() >= batch.until:
                    log.warning("rows_not_marked", rows=len(ended.sent), cause=str(exc))
                    return
                self._idle.wait(_AGAIN_S)
        self._announce(ended)

    def _write(self, batch: PublishedBatch, ended: EndedBatch) -> None:
        self._store.give_back(ended.token, batch.started.unsent)
        fenced = self._store.mark(ended.token, ended.sent, ended.failed)
        self._metrics.ended(ended, fenced)
        if fenced:
            log.warning("rows_taken_by_another_relay", rows=fenced)
        self._wake.set()

    @property
    def empty(self) -> bool:
        """Whether no batch waits."""
        return self._batches.empty()

    def taken(self) -> PublishedBatch | None:
        """Waits for the next batch. Returns None after `close`."""
        while True:
            self.turn = self._monotonic()
            try:
                return self._batches.get(timeout=1.0)
            except queue.Empty:
                continue


def _repeatable(ended: EndedBatch) -> int:
    """Returns the failures that may be Kafka's; a row that is parked for what it is says nothing of it."""
    return sum(one.delay_ms is not None for one in ended.failed)
