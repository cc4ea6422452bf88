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
"""Longest wait for one of the six answers."""
Partition = tuple[str, int]
"""Topic and number."""


class TopicLag(NamedTuple):
    """The lag of one topic."""

    records: int
    """After the group's committed offsets; a partition without one counts from its first record."""
    partitions: int


class _Clients(NamedTuple):
    admin: AdminClient
    reader: Consumer


class GroupLagQuery:
    """For one thread. Keeps its clients between questions."""

    def __init__(self, settings: KafkaSettings, ask_s: float = _ASK_S) -> None:
        """`ask_s`: the longest wait for one answer, in seconds."""
        self._settings = settings
        self._ask_s = ask_s
        self._clients: _Clients | None = None

    def lag(self, topics: Collection[str]) -> dict[str, TopicLag]:
        """Returns the lag of each topic that exists; nothing on the embedded cluster, which aborts a
        process whose admin client asks for offsets. Raises KafkaUnavailable, SettingsError."""
        if self._clients is None:
            self._clients = _Clients(
                admin(self._settings, quiet=True), offset_reader(self._settings)
            )
        client, reader = self._clients
        client.poll(0)  # takes the events that wait there
        reader.poll(0)
        if is_embedded(client, self._ask_s):
            return {}
        partitions = self._partitions(client, topics)
        committed = self._committed(reader, partitions)
        return _behind(log_bounds(client, partitions, self._ask_s), committed)

    def _partitions(self, client: AdminClient, topics: Collection[str]) -> list[Partition]:
        try:
            known = client.list_topics(timeout=self._ask_s).topics
        except KafkaException as exc:
            raise KafkaUnavailable(f"topics are not listed ({exc.args[0].str()})") from exc
        return [(topic, p) for topic in topics if topic in known for p in known[topic].partitions]

    def _committed(
        self, reader: Consumer, partitions: Collection[Partition]
    ) -> dict[Partition, int]:
        if not partitions:
            return {}
        asked = [TopicPartition(*one) for one in partitions]
        try:
            found = reader.committed(asked, timeout=self._ask_s)
        except KafkaException as exc:
            raise KafkaUnavailable(f"offsets are not read ({exc.args[0].str()})") from exc
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def _behind(
    bounds: Mapping[Partition, tuple[int, int]], committed: Mapping[Partition, int]
) -> dict[str, TopicLag]:
    lag: dict[str, TopicLag] = {}
    for partition, (first, end) in bounds.items():
        begun = max(committed.get(partition, first), first)
        records, partitions = lag.get(partition[0], (0, 0))
        lag[partition[0]] = TopicLag(records + max(0, end - begun), partitions + 1)
    return lag
