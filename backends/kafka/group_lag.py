"""Records of a consumer group that are not committed yet, asked of the brokers, without a member.

A consumer asks for the offsets. The admin client aborts its process (an assertion in librdkafka 2.16) when
the group's coordinator goes away while it asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from backends.kafka.clients import (
    AdminClient,
    Consumer,
    KafkaException,
    KafkaUnavailable,
    TopicPartition,
    admin,
    is_embedded,
    offset_reader,
)
from backends.kafka.topic_reader import log_bounds
from backends.settings import KafkaSettings

_ASK_S: Final = 10.0
"""Longest wait for one of the five answers."""
Partition = tuple[str, int]
"""Topic and number."""


class _Clients(NamedTuple):
    admin: AdminClient
    reader: Consumer


class GroupLagQuery:
    """For one thread. Keeps its clients between questions."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._clients: _Clients | None = None

    def lag(self, topics: Collection[str]) -> dict[str, int]:
        """Returns, for each topic that exists, the records after the group's committed offsets; a partition
        without one counts from its first record. Nothing on the embedded cluster, which aborts a process
        that asks for offsets. Raises KafkaUnavailable, SettingsError."""
        if self._clients is None:
            self._clients = _Clients(
                admin(self._settings, quiet=True), offset_reader(self._settings)
            )
        client, reader = self._clients
        client.poll(0)  # takes the events that wait there
        reader.poll(0)
        if is_embedded(client, _ASK_S):
            return {}
        partitions = _partitions(client, topics)
        committed = _committed(reader, partitions)
        return _behind(log_bounds(client, partitions), committed)


def _partitions(client: AdminClient, topics: Collection[str]) -> list[Partition]:
    try:
        known = client.list_topics(timeout=_ASK_S).topics
    except KafkaException as exc:
        raise KafkaUnavailable(f"topics are not listed ({exc.args[0].str()})") from exc
    return [(topic, p) for topic in topics if topic in known for p in known[topic].partitions]


def _committed(reader: Consumer, partitions: Collection[Partition]) -> dict[Partition, int]:
    if not partitions:
        return {}
    try:
        found = reader.committed([TopicPartition(*one) for one in partitions], timeout=_ASK_S)
    except KafkaException as exc:
        raise KafkaUnavailable(f"offsets are not read ({exc.args[0].str()})") from exc
    return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def _behind(
    bounds: Mapping[Partition, tuple[int, int]], committed: Mapping[Partition, int]
) -> dict[str, int]:
    lag: dict[str, int] = {}
    for partition, (first, end) in bounds.items():
        begun = max(committed.get(partition, first), first)
        lag[partition[0]] = lag.get(partition[0], 0) + max(0, end - begun)
    return lag
