"""Metrics of a process's trace on `/metrics`: the lost events."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from tracing.events import Recorder


def show_drops(recorder: Recorder, registry: CollectorRegistry) -> None:
    """Registers `hongyan_trace_dropped_total{sink,reason}`, which asks the recorder at each scrape."""
    registry.register(_Drops(recorder))


class _Drops(Collector):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(
            "hongyan_trace_dropped", "Trace events lost.", labels=["sink", "reason"]
        )
        for labels, count in self._recorder.dropped().items():
            family.add_metric(labels, count)
        yield family
