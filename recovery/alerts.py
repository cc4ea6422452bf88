"""Alerts: what a person has to look at, told in the log once in a window and always counted."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

log = structlog.get_logger(__name__)


class Alerts:
    """One kind of trouble in one lane is one alert, however many deliveries it strikes. Thread-safe."""

    def __init__(
        self,
        registry: CollectorRegistry,
        window_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metric = Metric(
            "hongyan_alerts",
            "Deliveries that a person has to look at.",
            ("rule", "lane", "reason"),
            registry=registry,
        )
        self._window_s = window_s
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the two below
        self._told_at: dict[tuple[str, str, str], float] = {}
        self._kept_back: Counter[tuple[str, str, str]] = Counter()

    def parked(self, lane: str, reason: str, delivery: str) -> None:
        """A delivery waits for a person; `reason` is ours up to a colon, the provider's code behind it."""
        short = reason.partition(":")[0]
        self._raise("parked", lane, short, delivery, "hongyan_deliveries: state PARKED")

    def _raise(self, rule: str, lane: str, reason: str, delivery: str, where: str) -> None:
        about = (rule, lane, reason)
        self._metric.labels(*about).inc()
        with self._lock:
            now = self._monotonic()
            told_at = self._told_at.get(about)
            if told_at is not None and now - told_at < self._window_s:
                self._kept_back[about] += 1
                return
            self._told_at[about] = now
            more = self._kept_back.pop(about, 0)
        log.error(
            "alert", rule=rule, lane=lane, reason=reason, delivery=delivery, more=more, where=where
        )
