"""A histogram of times whose values are kept as they come and counted a thousand at a time.

prometheus_client's own locks for each value and walks its buckets in Python. Here the caller appends to a
list. A full list is sorted in C, and one search for each bound counts its buckets.
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
_FULL: Final = 1_000
"""Values that are counted together; a scrape counts those that are left."""


class BatchHistogram(Collector):
    """Shows a family in seconds and takes milliseconds. Thread-safe."""

    def __init__(self, family: Family, registry: CollectorRegistry) -> None:
        self._family = family
        self._bounds = [bound * _MS for bound in family.buckets]
        self._series: dict[tuple[str, ...], _Series] = {}
        self._lock = (
            threading.Lock()
        )  # guards the series, except that any thread appends to `values`
        registry.register(self)

    def values(self, *labels: str) -> list[int]:
        """Returns the list to which values with these labels are appended. It is
        asked for at least once in a batch. A value below 0 counts as 0: clocks differ."""
        series = self._series.get(labels)
        if series is None:
            with self._lock:
                series = self._series.setdefault(labels, _Series(len(self._bounds) + 1))
        if len(series.values) >= _FULL:
            with self._lock:
                self._count(series)
        return series.values

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See `Collector.collect`."""
        name, labels = self._family.name, self._family.labels
        shown = HistogramMetricFamily(name, self._family.text, labels=labels)
        bounds = [*map(str, self._family.buckets), "+Inf"]
        with self._lock:
            for series in self._series.values():
                self._count(series)
            found = {
                key: (list(s.counts), s.total_ms, s.made_at) for key, s in self._series.items()
            }
        for key, (counts, total_ms, made_at) in found.items():
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            shown.add_metric(key, buckets, total_ms / _MS)
            shown.add_sample(f"{name}_created", dict(zip(labels, key, strict=True)), made_at)
        yield shown

    def _count(self, series: _Series) -> None:
        """Counts the values so far and removes them; others may be appended meanwhile."""
        values = series.values[:]
        if not values:
            return
        del series.values[: len(values)]
        values.sort()
        series.total_ms += sum(values[bisect_left(values, 0) :])
        start, size = 0, len(values)
        for place in range(bisect_left(self._bounds, values[0]), len(self._bounds)):
            end = bisect_right(values, self._bounds[place], start)
            series.counts[place] += end - start
            start = end
            if start == size:
                return
        series.counts[-1] += size - start


class _Series:
    """The counts of one combination of labels."""

    __slots__ = ("counts", "made_at", "total_ms", "values")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total_ms = 0
        self.made_at = time.time()
        self.values: list[int] = []
        """Not counted yet."""
