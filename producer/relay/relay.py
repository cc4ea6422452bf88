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
from hongyan_client.outbox.store import ClaimedBatch, OutboxStore
from hongyan_client.records import BatchPublisher
from producer.relay.marker import PublishedBatch, RelayMarker
from producer.relay.metrics import RelayMetrics
from producer.relay.outage import KafkaOutage, probe_of

log = structlog.get_logger(__name__)
_AWAY_S: Final = 1.0
_SECOND_LOOK_S: Final = 0.02
"""A writer that notified lately does not do so again; this look finds its rows."""
_SECOND_LOOKS: Final = 2
_PROBE_LOOKS: Final = 20
"""Most claims of one probe that find no row that may go."""
_HELPER_S: Final = 0.25
"""Longest wait of the helping thread before it looks whether it must end."""


class RelayTerms(NamedTuple):
    """Pace and lease of one relay."""

    owner: str
    lease_s: float
    poll_s: float
    batch: int
    """Rows of one claim."""

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
        """Claims and publishes one batch, during an outage of Kafka a probe. Returns the number of due rows
        that it saw."""
        if self._outage.lasts:
            return self._probe()
        batch, until = self._claimed()
        self._publish(batch, until)
        return batch.seen

    def _claimed(self) -> tuple[ClaimedBatch, float]:
        """Returns due rows, and the time until which they are this relay's."""
        self._wake.clear()
        claimed_at = self._monotonic()
        lease_ms = int(self._terms.lease_s * 1_000)
        batch = self._store.claim_due(self._terms.owner, lease_ms, self._terms.batch)
        self._metrics.claim.observe(self._monotonic() - claimed_at)
        return batch, claimed_at + self._terms.usable_s

    def _publish(self, batch: ClaimedBatch, until: float) -> None:
        if batch.rows:
            started = publish_batch(
                batch, self._publisher, until, self._monotonic, self._marker.look_again
            )
            self._marker.add(PublishedBatch(started, until))

    def _probe(self) -> int:
        """Publishes one row of each topic, the longest due, and gives back the others. A look that saw only
        rows behind the heads of their keys has put them off, so the next one follows at once."""
        seen = 0
        for _ in range(_PROBE_LOOKS):
            batch, until = self._claimed()
            tried, others = probe_of(batch.rows)
            self._store.give_back(batch.token, others)
            self._publish(batch._replace(rows=tried), until)
            seen = batch.seen
            if tried or not seen or self._ends():
                break
        return seen

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
        """Has `help` work after a full claim, but not during an outage of Kafka."""
        if seen >= self._terms.batch and not self._outage.lasts:
            self.busy.set()
        else:
            self.busy.clear()

    def _ends(self) -> bool:
        return self._stop.is_set() or self._marker.ended

    def _rest(self, seen: int) -> None:
        """Waits before the next claim: not at all after rows, unless Kafka is away. The main thread sets
        `wake` after `stop`, so no wait outlasts it."""
        if self._ends():
            return
        if self._outage.lasts:
            self._pause(self._monotonic() + self._outage.pause_s)
        elif seen:
            self._looks = _SECOND_LOOKS
        elif self._looks:
            self._looks -= 1
            self._wake.wait(_SECOND_LOOK_S)
        elif self._wake.wait(self._terms.poll_s):
            self._looks = _SECOND_LOOKS

    def _pause(self, until: float) -> None:
        """Waits for the next probe, or until a mark tells that Kafka is back."""
        while self._outage.lasts and not self._ends() and (left := until - self._monotonic()) > 0:
            self._wake.wait(left)
            self._wake.clear()

    def _note_away(self, exc: OutboxAway) -> None:
        if not self.away:
            log.warning("outbox_away", cause=str(exc))
        self.away = True
