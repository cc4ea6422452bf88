"""Metrics of a process's trace on `/metrics`: the lost events."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from backends.metrics.readings import Reading, show_readings
from backends.metrics.shared_families import TRACE_DROPPED
from tracing.events import Recorder


def show_drops(recorder: Recorder, registry: CollectorRegistry) -> None:
    """Registers `hongyan_trace_dropped_total{sink,reason}`, which asks the recorder at each scrape."""

    def drops() -> Iterator[Reading]:
        for (sink, reason), count in recorder.dropped().items():
            yield Reading(TRACE_DROPPED, {"sink": sink, "reason": reason}, count)

    show_readings(registry, drops, TRACE_DROPPED)
