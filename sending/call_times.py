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
    """The histograms of one process. Thread-safe; counts a batch at a time, without a lock per value."""

    def __init__(self, calls: Family, registry: CollectorRegistry) -> None:
        """`calls` is the process's family for its calls, with the labels lane and account."""
        self._calls = BatchHistogram(calls, registry)
        self._deliveries = BatchHistogram(DELIVERY_SECONDS, registry)

    def count(self, works: Iterable[TimedWork], sent: Sequence[bool]) -> None:
        """Counts the calls of these deliveries; `sent`: per delivery, whether it is SENT in the ledger."""
        calls: dict[tuple[str, ...], list[int]] = {}
        waits: dict[tuple[str, ...], list[int]] = {}
        for work, accepted in zip(works, sent, strict=True):
            answered_at = work.answered_at
            if not answered_at:
                continue
            delivery = work.delivery
            key, took_ms = (delivery.lane, delivery.account), answered_at - work.started_at
            if (values := calls.get(key)) is None:
                calls[key] = [took_ms]
            else:
                values.append(took_ms)
            if accepted:
                lane, waited_ms = key[:1], answered_at - delivery.notification.created_at
                if (values := waits.get(lane)) is None:
                    waits[lane] = [waited_ms]
                else:
                    values.append(waited_ms)
            for tried in work.tries:
                took_ms = tried.answered_at - tried.started_at
                calls.setdefault((delivery.lane, tried.account), []).append(took_ms)
        for key, values in calls.items():
            self._calls.observe(key, values)
        for lane, values in waits.items():
            self._deliveries.observe(lane, values)
