"""Metrics of the console on `/metrics`: its requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry

from backends.http_server.request_times import RequestTimes, Scope, route_of
from backends.metrics import console_families as of_console
from backends.metrics.families import CONSOLE
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process

_LIVE: Final = "/live/"
"""Prefix of live streams, which last as long as their page is open."""


class ConsoleMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, CONSOLE)
        self._requests = counter_of(of_console.REQUESTS, self.registry)
        self._took = histogram_of(of_console.TOOK, self.registry)

    def answered(self, route: str, status: int, took_s: float | None) -> None:
        """Counts one answer; without `took_s` its time says nothing."""
        self._requests.labels(route, str(status)).inc()
        if took_s is not None:
            self._took.labels(route).observe(took_s)


def timed(
    app: ASGIApp, metrics: ConsoleMetrics, monotonic: Callable[[], float] = time.monotonic
) -> RequestTimes:
    """Returns the application with its answers counted and timed."""

    def note(scope: Scope, status: int, took_s: float) -> None:
        streams = scope["path"].startswith(_LIVE)
        metrics.answered(route_of(scope), status, None if streams else took_s)

    return RequestTimes(app, note, monotonic=monotonic)
