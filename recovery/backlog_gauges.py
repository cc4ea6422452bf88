"""How much waits, as `/metrics` shows it: only what was measured lately. A number that nobody measured
is not shown, since 0 would say that nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from idempotency.recovering import Backlog

_MS: Final = 1_000
_TEXTS: Final = {
    "due": "Deliveries due and not taken; counted up to 10,000.",
    "unknown": "Deliveries in doubt; counted up to 10,000.",
    "oldest_due_seconds": "How long the oldest is due.",
    "oldest_unknown_seconds": "Age of a doubt that comes next.",
}


class BacklogGauges(Collector):
    """`show` is the measuring thread's; anyone may collect."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._shown: tuple[float, Sequence[Backlog]] = (float("-inf"), ())
        """Until when it holds, and what was measured; replaced as a whole by `show`."""

    def show(self, backlog: Sequence[Backlog], valid_s: float) -> None:
        """What waits now; it is shown for so many seconds."""
        self._shown = self._monotonic() + valid_s, backlog

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """See `Collector.describe`."""
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """See `Collector.collect`."""
        valid_until, backlog = self._shown
        if self._monotonic() >= valid_until:
            return
        families = {
            name: GaugeMetricFamily(f"hongyan_recovery_{name}", text, labels=["lane"])
            for name, text in _TEXTS.items()
        }
        for lane, due, doubted, due_ms, doubt_ms in backlog:
            values = (due, doubted, due_ms / _MS, doubt_ms / _MS)
            for family, value in zip(families.values(), values, strict=True):
                family.add_metric([lane], value)
        yield from families.values()
