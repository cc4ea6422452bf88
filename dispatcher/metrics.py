"""The worker's metrics, counted in batches."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from sending.runtime.gauges import Gauges, show_gauges

_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_BOUNDS = (*(str(bound) for bound in _SECONDS), "+Inf")


class CallSeconds(Collector):
    """`hongyan_call_seconds`, by lane. Only `CompletionStage`'s thread observes; a scrape may miss its last
    batch. prometheus_client's own histogram locks for each value, which costs over four times as much."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lanes: dict[str, _Durations] = {}
        registry.register(self)

    def observe(self, lane: str, seconds: float) -> None:
        """Counts one call."""
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = _Durations()
        found.counts[bisect_left(_SECONDS, seconds)] += 1
        found.total += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yields the histogram of every lane."""
        family = HistogramMetricFamily(
            "hongyan_call_seconds", "One provider call.", labels=["lane"]
        )
        for lane, found in list(self._lanes.items()):
            family.add_metric(
                [lane],
                list(zip(_BOUNDS, map(float, accumulate(found.counts)), strict=True)),
                found.total,
            )
            family.add_sample("hongyan_call_seconds_created", {"lane": lane}, found.created)
        yield family


class _Durations:
    """Durations of one lane's calls, by bucket."""

    def __init__(self) -> None:
        self.counts = [0] * len(_BOUNDS)
        self.total = 0.0
        self.created = time.time()


class Metrics:
    """One worker's counters. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.received = self._counter("received", "Notifications read from Kafka.", "lane")
        self.settled = self._counter(
            "settled", "Deliveries that ended here, by how.", "lane", "outcome"
        )
        self.duplicates = self._counter(
            "duplicates", "Deliveries the ledger or Redis already had.", "lane", "by"
        )
        self.dead_letters = self._counter("dead_letters", "Poison records passed on.", "reason")
        self.records_removed = self._counter(
            "records_removed", "Offsets that Kafka removed before they were read.", "lane"
        )
        self.logs_anew = self._counter(
            "logs_begun_anew", "Partitions whose log ended below the committed offset.", "lane"
        )
        self.hits = self._counter("prefilter_hits", "Deliveries Redis knew to be settled.")
        self.pauses = self._counter("pauses", "Times a lane's partitions were paused.", "lane")
        self.commits = self._counter("commits", "Offset commits, by result.", "result")
        self.claim_batch = self._histogram("claim_batch", "Deliveries per claim.", _BATCHES)
        self.claim_seconds = self._histogram("claim_seconds", "One claim statement.", _SECONDS)
        self.settle_batch = self._histogram("settle_batch", "Outcomes per settle.", _BATCHES)
        self.settle_seconds = self._histogram("settle_seconds", "One settle statement.", _SECONDS)
        self.call_seconds = CallSeconds(self.registry)

    def claimed(self, batch: int, seconds: float) -> None:
        """Counts one claim statement."""
        self.claim_batch.observe(batch)
        self.claim_seconds.observe(seconds)

    def prefilter_hits(self, hits: int) -> None:
        """Counts deliveries that Redis knew to be settled."""
        self.hits.inc(hits)

    def show(self, gauges: Gauges) -> None:
        """Reads `gauges` at each scrape."""
        show_gauges(self.registry, gauges)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"hongyan_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"hongyan_{name}", text, labels, buckets=buckets, registry=self.registry)
