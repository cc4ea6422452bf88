"""Metrics of the gateway on `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry

from backends.metrics import gateway_families as of_gateway
from backends.metrics.families import GATEWAY
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process
from backends.metrics.readings import Reading, show_readings


class GatewayMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, GATEWAY)
        counter = partial(counter_of, registry=self.registry)
        self.requests = counter(of_gateway.REQUESTS)
        self.accepted = counter(of_gateway.ACCEPTED)
        self.refused = counter(of_gateway.REFUSED)
        self.took = histogram_of(of_gateway.TOOK, self.registry)

    def answered(self, route: str, status: int, took_s: float) -> None:
        """Counts one answer."""
        self.requests.labels(route, str(status)).inc()
        self.took.observe(took_s)

    def show(self, keys_age_s: Callable[[], float], unacknowledged: Callable[[], float]) -> None:
        """Asks at each scrape for the age of the keys and the records without an acknowledgement."""
        show_readings(
            self.registry,
            lambda: [
                Reading(of_gateway.KEYS_AGE, {}, keys_age_s()),
                Reading(of_gateway.UNACKNOWLEDGED, {}, unacknowledged()),
            ],
        )
