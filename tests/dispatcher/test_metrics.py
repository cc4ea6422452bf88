"""`hongyan_call_seconds`, judged by prometheus_client's own histogram."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dispatcher.metrics import CallSeconds

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
ON_THE_BOUNDS = [*BUCKETS, 0.0, 10.000001, 3600.0]


def exposed(registry: CollectorRegistry) -> list[tuple[str, dict[str, str], float]]:
    """Returns the samples that a scrape reads, without the times at which the series were made."""
    (family,) = text_string_to_metric_families(
        "\n".join(
            line
            for line in generate_latest(registry).decode().splitlines()
            if "_created" not in line
        )
    )
    assert family.type == "histogram"
    return [(sample.name, sample.labels, sample.value) for sample in family.samples]


def test_a_scrape_reads_what_prometheus_clients_own_histogram_shows() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = CallSeconds(ours)
    judge = Histogram("hongyan_call_seconds", "Judge.", ["lane"], buckets=BUCKETS, registry=theirs)
    chance = random.Random(7)
    values = ON_THE_BOUNDS + [chance.expovariate(4.0) for _ in range(500)]
    for lane in ("sms.notice", "email.notice"):
        for value in values:
            counted.observe(lane, value)
            judge.labels(lane).observe(value)
    assert exposed(ours) == exposed(theirs)


def test_each_lane_tells_when_its_series_was_made() -> None:
    registry = CollectorRegistry()
    CallSeconds(registry).observe("sms.notice", 0.1)
    text = generate_latest(registry).decode()
    assert 'hongyan_call_seconds_created{lane="sms.notice"}' in text
