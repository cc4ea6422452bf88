"""Metrics of a relay on `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry

from backends.metrics import relay_families as of_relay
from backends.metrics.families import RELAY
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process
from backends.metrics.readings import Reading, show_readings
from hongyan_client.outbox.publication import EndedBatch
from hongyan_client.outbox.relay_rows import OutboxBacklog
from idempotency.fleet.snapshots import BacklogSnapshot
from message.vocabulary import lane_of_topic

_MS = 1_000


class RelayMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self, topic_prefix: str) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, RELAY)
        self._prefix = topic_prefix
        self._published = counter_of(of_relay.PUBLISHED, self.registry)
        self._failed = counter_of(of_relay.FAILED, self.registry)
        self._fenced = counter_of(of_relay.FENCED, self.registry)
        self.claim = histogram_of(of_relay.CLAIM_SECONDS, self.registry)
        self.published = 0
        """Rows since the start; the marker's thread writes it."""
        self.backlog: OutboxBacklog | None = None
        """The last measurement; the reporter's thread replaces it. None: the database does not answer."""
        show_readings(self.registry, self._readings)

    def ended(self, ended: EndedBatch, fenced: int) -> None:
        """Counts a marked batch."""
        self.published += len(ended.sent)
        self._fenced.inc(fenced)
        for topic, rows in Counter(row.topic for row in ended.sent).items():
            self._published.labels(self._lane(topic)).inc(rows)
        kinds = Counter(_kind(one.delay_ms, one.in_doubt) for one in ended.failed)
        for kind, rows in kinds.items():
            self._failed.labels(kind).inc(rows)

    def snapshot(self) -> BacklogSnapshot | None:
        """Returns the last measurement as `hongyan status` shows it; None if there is none."""
        found = self.backlog
        if found is None:
            return None
        return BacklogSnapshot(found.pending, found.oldest_ms / _MS, found.parked)

    def _lane(self, topic: str) -> str:
        lane = lane_of_topic(topic, self._prefix)
        return lane.name if lane is not None else "other"

    def _readings(self) -> Iterable[Reading]:
        found = self.backlog
        shown: Sequence[float] = (-1, -1, -1)
        if found is not None:
            shown = (found.pending, found.oldest_ms / _MS, found.parked)
        families = (of_relay.PENDING, of_relay.OLDEST_SECONDS, of_relay.PARKED)
        for family, value in zip(families, shown, strict=True):
            yield Reading(family, {}, value)


def _kind(delay_ms: int | None, in_doubt: bool) -> str:
    if delay_ms is None:
        return "parked"
    return "in_doubt" if in_doubt else "refused"
