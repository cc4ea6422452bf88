"""Lag of the worker group, measured from outside of it: also while no worker lives."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

import msgspec
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]

from backends.kafka.clients import Consumer, KafkaError, KafkaException, TopicPartition, consumer
from backends.settings import KafkaSettings

_STEP_S: Final = 0.1


def group_lag(
    settings: KafkaSettings, topics: Iterable[str], within_s: float
) -> dict[str, tuple[int, int]]:
    """Returns topic to (records behind the log's end, partitions), for existing topics that were measured
    within the time. A topic without a commit counts from its first record. Never raises KafkaException; an
    unreachable broker measures nothing."""
    deadline = time.monotonic() + within_s
    down: list[KafkaError] = []
    member = msgspec.structs.replace(settings, group_instance_id="")
    with closing(consumer(member, protocol="classic", on_error=down.append, quiet=True)) as reader:
        try:
            metadata = _metadata(reader, down, deadline)
            if metadata is None:
                return {}
            places = [
                TopicPartition(topic, partition)
                for topic in topics
                if topic in metadata.topics and metadata.topics[topic].error is None
                for partition in metadata.topics[topic].partitions
            ]
            return _measured(reader, places, deadline)
        except KafkaException:
            return {}


def _metadata(reader: Consumer, down: list[KafkaError], deadline: float) -> ClusterMetadata | None:
    """Returns the cluster's metadata; None if every broker refused, or at the deadline."""
    while time.monotonic() < deadline:
        try:
            metadata: ClusterMetadata = reader.list_topics(timeout=_STEP_S)
        except KafkaException:
            reader.poll(0)  # lets the client call `down.append`
            if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in down):  # noqa: SLF001
                return None
        else:
            return metadata
    return None


def _measured(reader: Consumer, places: list[Any], deadline: float) -> dict[str, tuple[int, int]]:
    left = deadline - time.monotonic()
    if not places or left <= 0:
        return {}
    found: dict[str, tuple[int, int]] = {}
    incomplete: set[str] = set()
    for place in reader.committed(places, timeout=left):
        left = deadline - time.monotonic()
        if left <= 0 or place.error is not None:
            incomplete.add(place.topic)
            continue
        low, high = reader.get_watermark_offsets(place, timeout=left)
        begun = place.offset if place.offset >= 0 else low
        lag, partitions = found.get(place.topic, (0, 0))
        found[place.topic] = lag + max(high - max(begun, low), 0), partitions + 1
    return {topic: one for topic, one in found.items() if topic not in incomplete}
