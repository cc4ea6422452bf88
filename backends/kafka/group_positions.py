"""Committed offsets of the workers' group beside each log's bounds and topic ids, without a member.

A topic that is made anew between two answers would mix two logs. Its ids are therefore read before and
after; while one changed, its topic is asked about again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from backends.kafka.clients import (
    AdminClient,
    Consumer,
    KafkaError,
    KafkaException,
    KafkaUnavailable,
    TopicPartition,
    admin,
    is_embedded,
    offset_reader,
)
from backends.settings import KafkaSettings

_ASK_S: Final = 10.0
"""Longest wait for one answer."""
_TRIES: Final = 5
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NOT_THERE: Final = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART)  # noqa: SLF001 - its name
Place = tuple[str, int]


class GroupPosition(NamedTuple):
    """One partition."""

    topic: str
    topic_id: str
    """Empty on the embedded cluster."""
    partition: int
    committed: int | None
    metadata: str
    """Of the commit; empty: none."""
    first: int
    end: int
    """The last stable offset: a reader of committed records gets no further."""


def group_positions(settings: KafkaSettings, topics: Collection[str]) -> list[GroupPosition]:
    """Returns the position of every partition of the topics that exist; a fixed number of requests,
    however many partitions there are. Raises KafkaUnavailable, SettingsError."""
    client = admin(settings, quiet=True)
    with closing(offset_reader(settings)) as reader:
        embedded = is_embedded(client, _ASK_S)
        found: dict[str, list[GroupPosition]] = {}
        wanted = set(topics)
        for _ in range(_TRIES):
            there = _partitions(client, wanted)
            before = {} if embedded else topic_ids(client, there)
            committed = _committed(reader, there)
            bounds = _watermarks(reader, there) if embedded else _log_bounds(client, there)
            after = {} if embedded else topic_ids(client, {topic for topic, _ in there})
            changed = {topic for topic in wanted if before.get(topic) != after.get(topic)}
            for topic in wanted - changed:
                found[topic] = _of_topic(topic, after.get(topic, ""), committed, bounds)
            wanted = changed
            if not wanted:
                return [one for topic in sorted(found) for one in found[topic]]
    raise KafkaUnavailable(f"topics change while they are read ({', '.join(sorted(wanted))})")


def _of_topic(
    topic: str,
    topic_id: str,
    committed: Mapping[Place, tuple[int, str]],
    bounds: Mapping[Place, tuple[int, int]],
) -> list[GroupPosition]:
    found = []
    for (name, partition), (first, end) in sorted(bounds.items()):
        if name == topic:
            offset, metadata = committed.get((name, partition), (None, ""))
            found.append(GroupPosition(name, topic_id, partition, offset, metadata, first, end))
    return found


def _partitions(client: AdminClient, topics: Collection[str]) -> list[Place]:
    try:
        known = client.list_topics(timeout=_ASK_S).topics
    except KafkaException as exc:
        raise KafkaUnavailable(f"topics are not listed ({exc.args[0].str()})") from exc
    return [(topic, p) for topic in topics if topic in known for p in known[topic].partitions]


def topic_ids(client: AdminClient, places: Iterable[Place] | Iterable[str]) -> dict[str, str]:
    """Returns Kafka's ids of the topics that are there, or of those of the places. Raises
    KafkaUnavailable."""
    names = sorted({place if isinstance(place, str) else place[0] for place in places})
    if not names:
        return {}
    asked = client.describe_topics(TopicCollection(names), request_timeout=_ASK_S)
    found = {}
    for name, answer in asked.items():
        try:
            found[name] = str(answer.result().topic_id)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaUnavailable(f"{name} is not described ({exc.args[0].str()})") from exc
    return found


def _committed(reader: Consumer, places: Collection[Place]) -> dict[Place, tuple[int, str]]:
    if not places:
        return {}
    try:
        found = reader.committed([TopicPartition(*one) for one in places], timeout=_ASK_S)
    except KafkaException as exc:
        raise KafkaUnavailable(f"offsets are not read ({exc.args[0].str()})") from exc
    return {
        (one.topic, one.partition): (one.offset, one.metadata or "")
        for one in found
        if one.offset >= 0
    }


def _log_bounds(client: AdminClient, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
    first = _listed(client, places, _EARLIEST)
    ends = _listed(client, places, _LATEST)
    return {place: (first[place], ends[place]) for place in first.keys() & ends.keys()}


def _listed(client: AdminClient, places: Collection[Place], spec: OffsetSpec) -> dict[Place, int]:
    asked = client.list_offsets(
        {TopicPartition(*place): spec for place in places},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=_ASK_S,
    )
    found = {}
    for place, answer in asked.items():
        try:
            found[place.topic, place.partition] = answer.result().offset
        except KafkaException as exc:
            if exc.args[0].code() not in _NOT_THERE:
                raise KafkaUnavailable(f"offsets are not listed ({exc.args[0].str()})") from exc
    return found


def _watermarks(reader: Consumer, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
    """Returns the bounds on the embedded cluster, whose admin client would end the process."""
    try:
        return {
            place: reader.get_watermark_offsets(TopicPartition(*place), timeout=_ASK_S)
            for place in places
        }
    except KafkaException as exc:
        raise KafkaUnavailable(f"offsets are not listed ({exc.args[0].str()})") from exc
