"""Reads brokers, topics and the consumer group of a live cluster, for doctor. It writes nothing.

A part that may not be read carries the refusal with the ACL that is missing; it never looks healthy. The
members of the group are described only on demand: librdkafka 2.16 aborts the process if the coordinator
goes away meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any, Final

import msgspec
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    ClusterMetadata,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from backends.kafka.clients import (
    AdminClient,
    KafkaError,
    KafkaException,
    KafkaUnavailable,
    TopicPartition,
    admin,
    consumer,
    is_embedded,
)
from backends.settings import KafkaSettings

HOUR_MS: Final = 3_600_000
_SAMPLE: Final = 300
"""Records of a partition whose keys are counted."""
_POLL_S: Final = 0.2
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "the topic's own setting",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "set at run time for the broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "set at run time for all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "server.properties",
    ConfigSource.DEFAULT_CONFIG: "Kafka's default",
}
_FORBIDDEN: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


class ConfigValue(msgspec.Struct, frozen=True):
    """One setting with the place that gave it."""

    value: str
    source: str


class BrokerState(msgspec.Struct, frozen=True):
    """One broker; `refusal` says why its configuration is not known."""

    id: int
    config: dict[str, ConfigValue] = {}
    refusal: str = ""


class PartitionHealth(msgspec.Struct, frozen=True):
    """One partition now; a leader of -1 is none."""

    id: int
    leader: int
    replicas: int
    in_sync: int


class TopicState(msgspec.Struct, frozen=True):
    """One topic. Without partitions it is not there; `refusal` says why something is not known."""

    name: str
    partitions: list[PartitionHealth] = []
    config: dict[str, ConfigValue] = {}
    refusal: str = ""

    @property
    def replication(self) -> int:
        """The smallest number of copies of a partition."""
        return min((one.replicas for one in self.partitions), default=0)

    def value(self, key: str) -> str:
        """Returns the setting's value; empty if it is not known."""
        return self.config[key].value if key in self.config else ""


class MemberState(msgspec.Struct, frozen=True):
    """One member of the group."""

    client: str
    instance: str
    """Empty: no static membership."""


class GroupState(msgspec.Struct, frozen=True):
    """The workers' consumer group. An empty protocol: the group does not exist yet."""

    id: str
    protocol: str = ""
    """`consumer` (KIP-848) or `classic`."""
    assignor: str = ""
    """Of described members alone."""
    members: list[MemberState] | None = None
    """None: not asked."""
    refusal: str = ""


class PartitionGrowth(msgspec.Struct, frozen=True):
    """Records that one topic's partitions took in the last hour."""

    topic: str
    records: dict[int, int]
    hot_key: str = ""
    """The most frequent key of the largest partition's newest records."""
    hot_key_share: float = 0.0


class ClusterState(msgspec.Struct, frozen=True):
    """The cluster as it was read."""

    brokers: list[BrokerState]
    topics: dict[str, TopicState]
    group: GroupState
    offline: list[str] = []
    """Partitions without a leader, of all topics that may be listed."""
    growth: list[PartitionGrowth] = []
    embedded: bool = False


class ClusterInspection:
    """Reads one cluster. Each request ends within `ask_s`; the whole ends soon after `deadline`, which is
    of `time.monotonic`."""

    def __init__(self, settings: KafkaSettings, *, ask_s: float, deadline: float) -> None:
        self._settings = settings
        self._ask_s = ask_s
        self._deadline = deadline
        self._client: AdminClient = admin(settings, quiet=True)

    def read(
        self, topics: Sequence[str], *, lanes: Collection[str], members: bool = False
    ) -> ClusterState:
        """Returns the state of these topics, of all brokers and of the group; growth of `lanes` alone.
        Raises KafkaUnavailable."""
        metadata = self._metadata()
        if is_embedded(self._client, self._ask_s):
            return ClusterState([], {}, GroupState(self._settings.group_id), embedded=True)
        found = {name: metadata.topics[name] for name in topics if name in metadata.topics}
        return ClusterState(
            brokers=self._brokers(sorted(metadata.brokers)),
            topics=self._topics(topics, found),
            group=self._group(members=members),
            offline=_offline(metadata.topics.values()),
            growth=self._growth([found[name] for name in lanes if name in found]),
        )

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise KafkaUnavailable("the time for this run is over")
        return max(0.1, min(self._ask_s, left))

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._client.list_topics(timeout=self._left_s())
        except KafkaException as exc:
            raise KafkaUnavailable(
                f"Kafka at {self._settings.bootstrap} did not answer ({exc.args[0].str()})"
            ) from exc

    def _brokers(self, ids: Sequence[int]) -> list[BrokerState]:
        resources = [ConfigResource(ResourceType.BROKER, str(one)) for one in ids]
        acl = "DescribeConfigs on Cluster:kafka-cluster"
        found = self._configs(resources, dict.fromkeys(map(str, ids), acl))
        return [BrokerState(one, *found[str(one)]) for one in ids]

    def _topics(
        self, names: Sequence[str], found: Mapping[str, TopicMetadata]
    ) -> dict[str, TopicState]:
        refused = self._unseen([name for name in names if name not in found])
        acls = {name: f"DescribeConfigs on Topic:{name}" for name in found}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
        configs = self._configs(resources, acls)
        states = {name: TopicState(name, refusal=refused.get(name, "")) for name in names}
        for name, topic in found.items():
            partitions = [
                PartitionHealth(one.id, one.leader, len(one.replicas), len(one.isrs))
                for one in topic.partitions.values()
            ]
            states[name] = TopicState(name, partitions, *configs[name])
        return states

    def _unseen(self, names: Sequence[str]) -> dict[str, str]:
        """Returns the refusals of topics that are not listed; none for those that do not exist."""
        if not names:
            return {}
        asked = self._client.describe_topics(
            TopicCollection(list(names)), request_timeout=self._left_s()
        )
        refusals = {}
        for name, future in asked.items():
            error = _error_of(future)
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                refusals[name] = _refusal(error, f"Describe on Topic:{name}")
        return refusals

    def _configs(
        self, resources: Sequence[Any], acls: Mapping[str, str]
    ) -> dict[str, tuple[dict[str, ConfigValue], str]]:
        found: dict[str, tuple[dict[str, ConfigValue], str]] = {}
        for (
            resource
        ) in resources:  # a request for several brokers is refused: each answers for itself
            found[resource.name] = ({}, "")
        futures: dict[str, Future[Any]] = {}
        topics = [one for one in resources if one.restype is ResourceType.TOPIC]
        for group in [topics, *([one] for one in resources if one not in topics)]:
            if group:
                asked = self._client.describe_configs(group, request_timeout=self._left_s())
                futures |= {resource.name: future for resource, future in asked.items()}
        for name, future in futures.items():
            error = _error_of(future)
            if error is None:
                found[name] = ({key: _value(one) for key, one in future.result().items()}, "")
            else:
                found[name] = ({}, _refusal(error, acls[name]))
        return found

    def _group(self, *, members: bool) -> GroupState:
        wanted = self._settings.group_id
        acl = f"Describe on Group:{wanted}"
        future = self._client.list_consumer_groups(request_timeout=self._left_s())
        if (error := _error_of(future)) is not None:
            return GroupState(wanted, refusal=_refusal(error, acl))
        listed = next((one for one in future.result().valid if one.group_id == wanted), None)
        if listed is None:
            return GroupState(wanted)
        state = GroupState(wanted, protocol=listed.type.name.lower())
        return self._with_members(state, acl) if members else state

    def _with_members(self, state: GroupState, acl: str) -> GroupState:
        asked = self._client.describe_consumer_groups([state.id], request_timeout=self._left_s())
        if (error := _error_of(asked[state.id])) is not None:
            return msgspec.structs.replace(state, refusal=_refusal(error, acl))
        found = asked[state.id].result()
        members = [MemberState(one.client_id, one.group_instance_id or "") for one in found.members]
        return msgspec.structs.replace(
            state, assignor=found.partition_assignor or "", members=members
        )

    def _growth(self, topics: Sequence[TopicMetadata]) -> list[PartitionGrowth]:
        places = [(str(one.topic), number) for one in topics for number in one.partitions]
        hour_ago = time.time_ns() // 1_000_000 - HOUR_MS
        ends = self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        since = OffsetSpec.for_timestamp(hour_ago)
        starts = self._offsets(places, since)
        found: dict[str, dict[int, int]] = {}
        for place, end in ends.items():
            # Without a record since then the answer is -1: nothing was added.
            start = starts.get(place, -1)
            found.setdefault(place[0], {})[place[1]] = max(0, end - start) if start >= 0 else 0
        return [
            self._with_key(PartitionGrowth(topic, records), ends)
            for topic, records in found.items()
            if sum(records.values())
        ]

    def _offsets(self, places: Sequence[tuple[str, int]], spec: Any) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        asked = self._client.list_offsets(
            {TopicPartition(*place): spec for place in places}, request_timeout=self._left_s()
        )
        return {
            (place.topic, place.partition): future.result().offset
            for place, future in asked.items()
            if _error_of(future) is None
        }

    def _with_key(
        self, growth: PartitionGrowth, ends: Mapping[tuple[str, int], int]
    ) -> PartitionGrowth:
        """Returns the growth with the key that is most frequent in its largest partition, if that one took
        more than half of the records."""
        largest = max(growth.records, key=growth.records.__getitem__)
        if growth.records[largest] * 2 <= sum(growth.records.values()) or len(growth.records) < 2:
            return growth
        end = ends[growth.topic, largest]
        count = min(_SAMPLE, growth.records[largest])
        keys = self._keys(TopicPartition(growth.topic, largest, end - count), end)
        if not keys:
            return growth
        key, times = keys.most_common(1)[0]
        share = times / keys.total()
        return msgspec.structs.replace(growth, hot_key=key, hot_key_share=share)

    def _keys(self, start: TopicPartition, end: int) -> Counter[str]:
        alone = msgspec.structs.replace(
            self._settings, group_id=f"{self._settings.group_id}-doctor", group_instance_id=""
        )
        keys: Counter[str] = Counter()
        until = time.monotonic() + self._left_s()
        with closing(consumer(alone, protocol="classic")) as reader:
            reader.assign([start])
            while time.monotonic() < until:
                record = reader.poll(_POLL_S)
                if record is None or record.error() is not None:
                    continue
                keys[(record.key() or b"").decode(errors="replace")[:64]] += 1
                if (record.offset() or 0) + 1 >= end:
                    break
        return keys


def _offline(topics: Collection[TopicMetadata]) -> list[str]:
    return sorted(
        f"{topic.topic}/{one.id}"
        for topic in topics
        for one in topic.partitions.values()
        if one.leader < 0
    )


def _value(entry: Any) -> ConfigValue:
    source = _SOURCES.get(ConfigSource(entry.source), "unknown place")
    return ConfigValue("" if entry.value is None else str(entry.value), source)


def _error_of(future: Future[Any]) -> KafkaError | None:
    try:
        future.result()
    except KafkaException as exc:
        error: KafkaError = exc.args[0]
        return error
    return None


def _refusal(error: KafkaError, acl: str) -> str:
    if error.code() in _FORBIDDEN:
        return f"our user may not read it; the ACL {acl} is missing"
    return f"the broker did not answer ({error.str()})"
