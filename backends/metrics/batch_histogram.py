"""A histogram of times that is counted a batch at a time.

prometheus_client's own locks for each value and walks its buckets in Python. This one locks once for a
batch. A large batch is sorted in C, and one search for each bound counts its buckets.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from backends.metrics.families import Family

_MS: Final = 1_000
_SORTED: Final = 16
"""Values from which sorting costs less than a search for each."""


class BatchHistogram(Collector):
    """Shows a family in seconds and takes milliseconds. Thread-safe."""

    def __init__(self, family: Family, registry: CollectorRegistry) -> None:
        self._family = family
        self._bounds = [bound * _MS for bound in family.buckets]
        self._series: dict[tuple[str, ...], _Series] = {}
        self._lock = threading.Lock()  # guards the series and their fields
        registry.register(self)

    def observe(self, labels: tuple[str, ...], values_ms: list[int]) -> None:
        """Counts a batch; sorts the list in place. A value below 0 counts as 0: clocks differ."""
        with self._lock:
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = _Series(len(self._bounds) + 1)
            counts = series.counts
            if len(values_ms) < _SORTED:
                for value in values_ms:
                    counts[bisect_left(self._bounds, value)] += 1
                    series.total_ms += value if value > 0 else 0
                return
            values_ms.sort()
            self._count_sorted(counts, values_ms)
            below = bisect_left(values_ms, 0)
            series.total_ms += sum(values_ms[below:])

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See `Collector.collect`."""
        name, labels = self._family.name, self._family.labels
        shown = HistogramMetricFamily(name, self._family.text, labels=labels)
        bounds = [*map(str, self._family.buckets), "+Inf"]
        with self._lock:
            found = {
                key: (list(s.counts), s.total_ms, s.made_at) for key, s in self._series.items()
            }
        for key, (counts, total_ms, made_at) in found.items():
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            shown.add_metric(key, buckets, total_ms / _MS)
            shown.add_sample(f"{name}_created", dict(zip(labels, key, strict=True)), made_at)
        yield shown

    def _count_sorted(self, counts: list[int], values: list[int]) -> None:
        """Counts sorted values; ends at the bound that is above all of them."""
        start, size = 0, len(values)
        for place in range(bisect_left(self._bounds, values[0]), len(self._bounds)):
            end = bisect_right(values, self._bounds[place], start)
            counts[place] += end - start
            start = end
            if start == size:
                return
        counts[-1] += size - start


class _Series:
    """The counts of one combination of labels."""

    __slots__ = ("counts", "made_at", "total_ms")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total_ms = 0
        self.made_at = time.time()
