"""Metrics that are read from a process's parts at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from backends.metrics.families import Family, MetricType


class Reading(NamedTuple):
    """One sample."""

    family: Family
    labels: Mapping[str, str]
    value: float


Readings = Callable[[], Iterable[Reading]]
"""Yields every reading, at each scrape."""


def show_readings(registry: CollectorRegistry, readings: Readings, *always: Family) -> None:
    """Adds the readings to this registry. The families `always` are shown without a sample, too."""
    registry.register(_Readings(readings, always))


class _Readings(Collector):
    def __init__(self, read: Readings, always: Sequence[Family]) -> None:
        self._read = read
        self._always = always

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        found = {family.name: _opened(family) for family in self._always}
        for family, labels, value in self._read():
            shown = found.get(family.name)
            if shown is None:
                shown = found[family.name] = _opened(family)
            shown.add_metric([labels[label] for label in family.labels], value)
        return found.values()


def _opened(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    if family.type is MetricType.COUNTER:
        return CounterMetricFamily(family.name, family.text, labels=family.labels)
    return GaugeMetricFamily(family.name, family.text, labels=family.labels)
