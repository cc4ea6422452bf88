"""Gauges of a process: read from its stages at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Gauge = tuple[str, str, dict[str, str], float]
"""(name, help, labels, value)."""
Gauges = Callable[[], Iterable[Gauge]]
"""Yields every gauge, at each scrape."""


def show_gauges(registry: CollectorRegistry, gauges: Gauges) -> None:
    """Adds the gauges to this registry."""
    registry.register(_Gauges(gauges))


class _Gauges(Collector):
    def __init__(self, read: Gauges) -> None:
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, text, labels, value in self._read():
            family = families.get(name)
            if family is None:
                family = GaugeMetricFamily(f"hongyan_{name}", text, labels=list(labels))
                families[name] = family
            family.add_metric(list(labels.values()), value)
        return families.values()
