"""Claims due rows and hands them to Kafka's client. As many relays as wanted share a table.

A claim is one short transaction. The publication is outside of any. Marks are the marker's, which works
while the next batch is claimed. With a backlog on a server, a second thread claims and publishes, too: the
database works on one batch while the other one is handed to Kafka's client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from hongyan_client.outbox.errors import OutboxAway
from hongyan_client.outbox.publication import publish_batch
from hongyan_client.outbox.store import OutboxStore
from hongyan_client.records import BatchPublisher
from producer.relay.marker import PublishedBatch, RelayMarker
from producer.relay.metrics import RelayMetrics
from producer.relay.outage import KafkaOutage

log = structlog.get_logger(__name__)
_AWAY_S: Final = 1.0
_SECOND_LOOK_S: Final = 0.02
"""A writer that notified lately does not do so again; this look finds its rows."""
_SECOND_LOOKS: Final = 2
_HELPER_S: Final = 0.25
"""Longest wait of the helping thread before it looks whether it must end."""


class RelayTerms(NamedTuple):
    """Pace and lease of one relay."""

    owner: str
    lease_s: float
    poll_s: float

    @property
    def usable_s(self) -> float:
        """Part of the lease in which a row may be published and marked."""
        return self.lease_s * 0.8


class RelaySignals(NamedTuple):
    """Events that other threads set."""

    stop: threading.Event
    """No more may be claimed."""
    wake: threading.Event
    """Rows may be due now: ends the wait for the next look."""


class Relay:
    """One thread calls `run`. Another one may call `help`."""

    def __init__(
        self,
        store: OutboxStore,
        publisher: BatchPublisher,
        marker: RelayMarker,
        outage: KafkaOutage,
        metrics: RelayMetrics,
        terms: RelayTerms,
        signals: RelaySignals,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._marker = marker
        self._outage = outage
        self._metrics = metrics
        self._terms = terms
        self._stop, self._wake = signals
        self._monotonic = monotonic
        self.busy = threading.Event()
        """Set while claims come back full: a second claim at the same time helps. The relay's thread sets
        it; either thread clears it."""
        self._looks = 0  # quick looks that are left; the relay's thread writes it
        self.turn = monotonic()
        """Time of the last round; the relay's thread writes it."""
        self.away = False
        """Whether the database did not answer; the relay's thread writes it."""

    def run(self) -> None:
        """Publishes until `stop` is set or the marker has ended: nobody would mark what is published."""
        while not self._ends():
            self.turn = self._monotonic()
            try:
                seen = self.run_once()
            except OutboxAway as exc:
                self._note_away(exc)
                self._stop.wait(_AWAY_S)
                continue
            self.away = False
            self.call_helper(seen)
            self._rest(seen)

    def run_once(self) -> int:
        """Claims and publishes one batch. Returns the number of due rows that it saw."""
        self._wake.clear()
        claimed_at = self._monotonic()
        lease_ms = int(self._terms.lease_s * 1_000)
        batch = self._store.claim_due(self._terms.owner, lease_ms, self._outage.rows)
        self._metrics.claim.observe(self._monotonic() - claimed_at)
        if batch.rows:
            until = claimed_at + self._terms.usable_s
            started = publish_batch(
                batch, self._publisher, until, self._monotonic, self._marker.look_again
            )
            self._marker.add(PublishedBatch(started, until))
        return batch.seen

    def help(self) -> None:
        """Claims and publishes beside `run`, while there is a backlog, and ends as it does."""
        while not self._ends():
            if not self.busy.wait(_HELPER_S) or self._ends():
                continue
            try:
                seen = self.run_once()
            except OutboxAway:
                seen = 0  # `run` notes it, too
            if not seen:
                self.busy.clear()

    def call_helper(self, seen: int) -> None:
        """Has `help` work after a full claim. During an outage of Kafka one row at a time is tried."""
        if seen >= self._outage.rows and not self._outage.lasts:
            self.busy.set()
        else:
            self.busy.clear()

    def _ends(self) -> bool:
        return self._stop.is_set() or self._marker.ended

    def _rest(self, seen: int) -> None:
        """Waits before the next claim: not at all after rows, unless Kafka is away."""
        if self._outage.lasts:
            self._stop.wait(self._outage.pause_s)
        elif seen:
            self._looks = _SECOND_LOOKS
        elif self._looks:
            self._looks -= 1
            self._wake.wait(_SECOND_LOOK_S)
        elif self._wake.wait(self._terms.poll_s):
            self._looks = _SECOND_LOOKS

    def _note_away(self, exc: OutboxAway) -> None:
        if not self.away:
            log.warning("outbox_away", cause=str(exc))
        self.away = True
