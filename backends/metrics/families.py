"""The description of one metric family. Nothing is shown that has none."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from backends.metrics.buckets import BATCHES, SECONDS

PREFIX: Final = "hongyan_"
WORKER: Final = "worker"
RECOVERY: Final = "recovery"
RECEIPTS: Final = "receipts"
GATEWAY: Final = "gateway"
RELAY: Final = "relay"
LOOKBACK: Final = "lookback"
CAMPAIGNS: Final = "campaigns"
CONSOLE: Final = "console"
TRACERS: Final = (WORKER, RECOVERY, RECEIPTS, LOOKBACK, CAMPAIGNS, RELAY, GATEWAY)
"""Processes that write trace events."""
PROCESSES: Final = (*TRACERS, CONSOLE)


class MetricType(StrEnum):
    """Types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """One metric: its samples have this name, and these labels in this order."""

    name: str
    """As PromQL names it; of a histogram, without `_bucket`, `_sum` and `_count`."""
    type: MetricType
    labels: tuple[str, ...]
    text: str
    """Its meaning, one sentence."""
    watch: str
    """Values to watch for; empty: it explains others."""
    shown_by: tuple[str, ...]
    """Processes that show it."""

    @property
    def buckets(self) -> tuple[float, ...]:
        """Upper bounds of a histogram's buckets, without infinity."""
        return SECONDS if self.name.endswith("_seconds") else BATCHES


def counter(name: str, text: str, *labels: str, by: tuple[str, ...], watch: str = "") -> Family:
    """Returns the family `hongyan_<name>_total`."""
    return Family(f"{PREFIX}{name}_total", MetricType.COUNTER, labels, text, watch, by)


def gauge(name: str, text: str, *labels: str, by: tuple[str, ...], watch: str = "") -> Family:
    """Returns the family `hongyan_<name>`."""
    return Family(f"{PREFIX}{name}", MetricType.GAUGE, labels, text, watch, by)


def histogram(name: str, text: str, *labels: str, by: tuple[str, ...], watch: str = "") -> Family:
    """Returns the family `hongyan_<name>`; the suffix `_seconds` decides its buckets."""
    return Family(f"{PREFIX}{name}", MetricType.HISTOGRAM, labels, text, watch, by)
