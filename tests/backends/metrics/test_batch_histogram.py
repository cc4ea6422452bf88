"""`BatchHistogram`, judged by prometheus_client's own histogram."""

from __future__ import annotations

import random
import threading

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backends.metrics.batch_histogram import BatchHistogram
from backends.metrics.buckets import SECONDS
from backends.metrics.families import WORKER, histogram

FAMILY = histogram("call_seconds", "Judge.", "lane", "account", by=(WORKER,))
LABELS = ("sms.notice", "main")
ON_THE_BOUNDS = [*(int(bound * 1_000) for bound in SECONDS), 0, 86_400_001, 10**9]


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


def judged(values: list[int]) -> list[tuple[str, dict[str, str], float]]:
    registry = CollectorRegistry()
    judge = Histogram(
        FAMILY.name, FAMILY.text, FAMILY.labels, buckets=SECONDS, registry=registry
    ).labels(*LABELS)
    for value in values:
        judge.observe(max(0, value) / 1_000)
    return exposed(registry)


@pytest.mark.parametrize("size", [1, 3, 200, 999, 1_000, 1_001])
def test_a_scrape_reads_what_prometheus_clients_own_histogram_shows(size: int) -> None:
    registry, chance = CollectorRegistry(), random.Random(size)
    counted = BatchHistogram(FAMILY, registry)
    values = ON_THE_BOUNDS + [int(chance.expovariate(0.004)) for _ in range(5_000)]
    chance.shuffle(values)
    for start in range(0, len(values), size):
        counted.values(*LABELS).extend(values[start : start + size])
    assert [s[:2] for s in exposed(registry)] == [s[:2] for s in judged(values)]
    assert [s[2] for s in exposed(registry)] == pytest.approx([s[2] for s in judged(values)])


@pytest.mark.parametrize("size", [2, 20])
def test_a_creation_in_the_future_counts_as_no_wait(size: int) -> None:
    registry = CollectorRegistry()
    BatchHistogram(FAMILY, registry).values(*LABELS).extend([-5_000] * size)
    assert exposed(registry) == judged([0] * size)


def test_each_series_tells_when_it_was_made() -> None:
    registry = CollectorRegistry()
    BatchHistogram(FAMILY, registry).values(*LABELS).append(100)
    text = generate_latest(registry).decode()
    assert 'hongyan_call_seconds_created{account="main",lane="sms.notice"}' in text


def test_no_value_of_several_threads_is_lost() -> None:
    registry = CollectorRegistry()
    counted = BatchHistogram(FAMILY, registry)

    def count() -> None:
        for _ in range(500):
            counted.values(*LABELS).extend([1] * 7)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        generate_latest(registry)  # counts meanwhile
    for thread in threads:
        thread.join()
    assert exposed(registry)[0][2] == 4 * 500 * 7


def test_values_are_not_kept_where_nobody_scrapes() -> None:
    counted = BatchHistogram(FAMILY, CollectorRegistry())
    for _ in range(100):
        counted.values(*LABELS).extend([1] * 100)
    assert len(counted.values(*LABELS)) <= 1_000
