"""Metrics of receipts on `/metrics`."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from idempotency.receipts.rules import Receipt, ReceiptVerdict

_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class ReceiptMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.pushes = self._counter(
            "pushes", "Pushes, by how they were answered.", "account", "answer"
        )
        self.pulls = self._counter("pulls", "Questions to providers.", "account", "result")
        self.unreadable = self._counter(
            "unreadable", "Entries of pushes and pulls left out.", "account"
        )
        self.received = self._counter("received", "Receipts that came.", "account", "said")
        self.repeated = self._counter("repeated", "Receipts that were stored before.")
        self.placed = self._counter("placed", "Receipts that found their delivery.", "applied")
        self.forgotten = self._counter("forgotten", "Receipts past keep_days.", "placed")
        self.batch = Histogram(
            "hongyan_receipts_batch",
            "Receipts stored by one statement.",
            buckets=_BATCHES,
            registry=self.registry,
        )

    def show_waiting(self, count: Callable[[], float]) -> None:
        """Registers a gauge that asks at each scrape how many receipts wait for their delivery."""
        gauge = Gauge(
            "hongyan_receipts_waiting",
            "Receipts that wait for their delivery (counted to 10,000; -1: unknown).",
            registry=self.registry,
        )
        gauge.set_function(count)

    def stored(self, receipts: Sequence[Receipt], new: int) -> None:
        """Counts the receipts of one statement."""
        self.batch.observe(len(receipts))
        self.repeated.inc(max(0, len(receipts) - new))
        for (account, state), n in Counts((one.account, one.said) for one in receipts).items():
            self.received.labels(account, state.value).inc(n)

    def judged(self, verdicts: Sequence[ReceiptVerdict]) -> None:
        """Counts receipts that were placed for good."""
        for applied, n in Counts(str(verdict.applied) for verdict in verdicts).items():
            self.placed.labels(applied).inc(n)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"hongyan_receipts_{name}", text, labels, registry=self.registry)
