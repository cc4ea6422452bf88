"""prometheus_client's counters and histograms, made from a family's description."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from backends.metrics.families import Family


def counter_of(family: Family, registry: CollectorRegistry) -> Counter:
    """Returns a new counter in this registry."""
    return Counter(family.name, family.text, family.labels, registry=registry)


def histogram_of(family: Family, registry: CollectorRegistry) -> Histogram:
    """Returns a new histogram in this registry. It locks for each value: see `BatchHistogram`."""
    return Histogram(
        family.name, family.text, family.labels, buckets=family.buckets, registry=registry
    )
