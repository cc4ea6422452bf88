"""Times of provider calls, and of deliveries from their creation until the provider accepted them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from backends.metrics.batch_histogram import BatchHistogram
from backends.metrics.families import Family
from backends.metrics.shared_families import DELIVERY_SECONDS
from message.delivery import Delivery
from sending.attempts import PastCall


class TimedWork(Protocol):
    """A delivery after its call: a lane's Work, recovery's RetryWork. Times are epoch milliseconds."""

    started_at: int
    answered_at: int
    """0 without a call."""
    tries: tuple[PastCall, ...]

    @property
    def delivery(self) -> Delivery:
        """The delivery."""
        ...


class CallTimes:
    """The histograms of one process. Thread-safe; without a lock per value."""

    def __init__(self, calls: Family, registry: CollectorRegistry) -> None:
        """`calls` is the process's family for its calls, with the labels lane and account."""
        self._calls = BatchHistogram(calls, registry)
        self._deliveries = BatchHistogram(DELIVERY_SECONDS, registry)

    def count(self, works: Iterable[TimedWork], sent: Sequence[bool]) -> None:
        """Counts the calls of these deliveries; `sent`: per delivery, whether it is SENT in the ledger."""
        lane = account = ""
        took: list[int] = []
        waited: list[int] = []
        for work, accepted in zip(works, sent, strict=True):
            if not (answered_at := work.answered_at):
                continue
            delivery = work.delivery
            if delivery.account != account or delivery.lane != lane:
                lane, account = delivery.lane, delivery.account
                took = self._calls.values(lane, account)
                waited = self._deliveries.values(lane)
            took.append(answered_at - work.started_at)
            if accepted:
                waited.append(answered_at - delivery.notification.created_at)
            for tried in work.tries:
                past = self._calls.values(lane, tried.account)
                past.append(tried.answered_at - tried.started_at)
