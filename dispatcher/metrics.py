"""The worker's metrics, counted in batches."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry

from backends.metrics import worker_families as of_worker
from backends.metrics.families import WORKER
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process
from backends.metrics.readings import Readings, show_readings
from idempotency.sums.counter import MinuteSums
from sending.call_times import CallTimes


class Metrics:
    """One worker's metrics. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, WORKER)
        counter = partial(counter_of, registry=self.registry)
        histogram = partial(histogram_of, registry=self.registry)
        self.received = counter(of_worker.RECEIVED)
        self.settled = counter(of_worker.SETTLED)
        self.duplicates = counter(of_worker.DUPLICATES)
        self.dead_letters = counter(of_worker.DEAD_LETTERS)
        self.records_removed = counter(of_worker.RECORDS_REMOVED)
        self.logs_anew = counter(of_worker.LOGS_BEGUN_ANEW)
        self.hits = counter(of_worker.PREFILTER_HITS)
        self.pauses = counter(of_worker.PAUSES)
        self.commits = counter(of_worker.COMMITS)
        self.claim_batch = histogram(of_worker.CLAIM_BATCH)
        self.claim_seconds = histogram(of_worker.CLAIM_SECONDS)
        self.settle_batch = histogram(of_worker.SETTLE_BATCH)
        self.settle_seconds = histogram(of_worker.SETTLE_SECONDS)
        self.call_times = CallTimes(of_worker.CALL_SECONDS, self.registry)
        self.sums = MinuteSums()

    def claimed(self, batch: int, seconds: float) -> None:
        """Counts one claim statement."""
        self.claim_batch.observe(batch)
        self.claim_seconds.observe(seconds)

    def prefilter_hits(self, hits: int) -> None:
        """Counts deliveries that Redis knew to be settled."""
        self.hits.inc(hits)

    def show(self, readings: Readings) -> None:
        """Reads `readings` at each scrape."""
        show_readings(self.registry, readings)
