"""Metrics of the process itself: CPU, memory, files, garbage collection, versions."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)

from backends.metrics.readings import Reading, show_readings
from backends.metrics.shared_families import BUILD_INFO
from backends.program import program_version


def show_process(registry: CollectorRegistry, process: str) -> None:
    """Adds this process's own metrics; `process` is its kind, as in `families.PROCESSES`."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    labels = {
        "process": process,
        "version": program_version(),
        "python": platform.python_version(),
    }

    def build() -> Iterable[Reading]:
        yield Reading(BUILD_INFO, labels, 1)

    show_readings(registry, build)
