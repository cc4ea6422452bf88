"""Metrics of receipts on `/metrics`."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from prometheus_client import CollectorRegistry

from backends.metrics import receipts_families as of_receipts
from backends.metrics.families import RECEIPTS
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process
from backends.metrics.readings import Reading, show_readings
from idempotency.receipts.rules import Receipt, ReceiptVerdict
from idempotency.sums.counter import MinuteSums, Series
from receipts.arrivals import Arrivals

_NS_PER_MS = 1_000_000


class ReceiptMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self, accounts: Iterable[str] = ()) -> None:
        """`accounts` are those that may report."""
        self.arrivals = Arrivals(accounts)
        self.registry = CollectorRegistry()
        show_process(self.registry, RECEIPTS)
        counter = partial(counter_of, registry=self.registry)
        self.pushes = counter(of_receipts.PUSHES)
        self.pulls = counter(of_receipts.PULLS)
        self.unreadable = counter(of_receipts.UNREADABLE)
        self.received = counter(of_receipts.RECEIVED)
        self.repeated = counter(of_receipts.REPEATED)
        self.placed = counter(of_receipts.PLACED)
        self.forgotten = counter(of_receipts.FORGOTTEN)
        self.batch = histogram_of(of_receipts.BATCH, self.registry)
        self.sums = MinuteSums()

    def show_waiting(self, count: Callable[[], float]) -> None:
        """Asks at each scrape how many receipts wait for their delivery."""
        show_readings(self.registry, lambda: [Reading(of_receipts.WAITING, {}, count())])

    def stored(self, receipts: Sequence[Receipt], new: int) -> None:
        """Counts the receipts of one statement."""
        self.batch.observe(len(receipts))
        self.arrivals.stored(receipts)
        self.repeated.inc(max(0, len(receipts) - new))
        for (account, state), n in Counts((one.account, one.said) for one in receipts).items():
            self.received.labels(account, state.value).inc(n)

    def answered(self, account: str) -> None:
        """Counts an answer to a question for receipts."""
        self.pulls.labels(account, "answered").inc()
        self.arrivals.answered(account)

    def judged(self, verdicts: Sequence[ReceiptVerdict]) -> None:
        """Counts receipts that were placed for good."""
        for applied, n in Counts(str(verdict.applied) for verdict in verdicts).items():
            self.placed.labels(applied).inc(n)
        self.sums.add(time.time_ns() // _NS_PER_MS, [*_moved(verdicts)])


def _moved(verdicts: Sequence[ReceiptVerdict]) -> Iterator[Series]:
    for verdict in verdicts:
        if verdict.moves and verdict.row is not None and verdict.state is not None:
            yield verdict.row.lane, verdict.receipt.account, verdict.state.value
