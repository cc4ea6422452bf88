"""Kafka from outside the worker: send, read dead letters, see what the group committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from dispatcher.kafka.offset_metadata import OffsetRange
from dispatcher.kafka.offset_metadata import decode as decode_runs
from message.envelope import Notification, encode
from message.vocabulary import dead_letter_topic, lane_named, outcome_topic, trace_topic
from tests.harness.notifications import LANE, keys_of
from tests.harness.waiting import await_

_QUIET = {"log_level": 2}
_ASK_S = 10.0
_ACKNOWLEDGED_S = 180.0
"""A broker that is down for half a minute takes another to be back on a busy machine."""
ANY_PARTITION = -1


class Place(NamedTuple):
    """One partition."""

    topic: str
    partition: int


class Committed(NamedTuple):
    """What the group committed for one partition."""

    offset: int
    metadata: str

    @property
    def runs(self) -> list[OffsetRange]:
        """What is done above the offset."""
        return decode_runs(self.metadata, self.offset)

    def covers(self, offset: int) -> bool:
        """Whether the group will not look at this offset again."""
        return offset < self.offset or any(r.start <= offset < r.end for r in self.runs)


@dataclass(frozen=True)
class Sent:
    """One record that a broker acknowledged."""

    place: Place
    offset: int
    value: bytes | None
    notification: Notification | None = None
    """None for what is no notification on purpose."""
    keys: list[str] = field(default_factory=list)
    """The delivery keys it stands for."""


class DeadLetter(NamedTuple):
    """One record of the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return self.headers["hongyan-dead-reason"]

    @property
    def origin(self) -> str:
        return self.headers["hongyan-dead-origin"]


class Wire:
    """One prefix on one cluster, and one group."""

    def __init__(self, bootstrap: str, prefix: str, group: str) -> None:
        self.prefix = prefix
        self.group = group
        self._bootstrap = bootstrap
        self.admin = self._new_admin()
        self._producer: Producer | None = None
        self._member: Consumer | None = None

    # -- topics --

    def topic(self, lane: str) -> str:
        """The dispatch topic of a lane."""
        known = lane_named(lane)
        assert known is not None, lane
        return known.topic(self.prefix)

    def make_topic(self, name: str, partitions: int, **config: str) -> None:
        """Make one topic and wait until it is known; configuration with underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self.admin.create_topics(
            [NewTopic(name, partitions, 1, config=settings)], operation_timeout=_ASK_S
        )
        made[name].result()
        await_(lambda: self.partitions(name) == partitions, what=f"{name} is there")

    def delete_topic(self, name: str) -> None:
        """Delete one topic and wait until it is gone."""
        self.admin.delete_topics([name], operation_timeout=_ASK_S)[name].result()
        await_(lambda: self.partitions(name) == 0, what=f"{name} is gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result()

    def configure_topic(self, name: str, **config: str) -> None:
        """Change a topic's configuration, underscores for dots."""
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result()

    def truncate(self, name: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset, as retention does."""
        for done in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            done.result()

    def partitions(self, name: str) -> int:
        """How many partitions a topic has; 0 when it is not there."""
        try:
            found = self.admin.list_topics(name, timeout=_ASK_S).topics.get(name)
        except KafkaException:
            self.admin = self._new_admin()  # one that knew the broker frozen may not find it again
            raise
        return len(found.partitions) if found is not None and found.error is None else 0

    def ends(self, name: str) -> dict[Place, int]:
        """The log's end, per partition."""
        with closing(self._reader()) as reader:
            return {
                Place(name, number): reader.get_watermark_offsets(
                    TopicPartition(name, number), timeout=_ASK_S
                )[1]
                for number in range(self.partitions(name))
            }

    def starts(self, name: str) -> dict[Place, int]:
        """The log's start, per partition."""
        with closing(self._reader()) as reader:
            return {
                Place(name, number): reader.get_watermark_offsets(
                    TopicPartition(name, number), timeout=_ASK_S
                )[0]
                for number in range(self.partitions(name))
            }

    # -- sending --

    def send(
        self,
        items: Iterable[Notification | bytes | None],
        partition: int | None = None,
        *,
        lane: str = LANE,
        key: bytes | None = b"k",
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> list[Sent]:
        """Produce and wait until every one is acknowledged, in the order given.

        Bytes and None go as they are to the topic of `lane`, with this key and these headers.
        """
        drafts = [
            (item.lane.topic(self.prefix), encode(item), item.kafka_key, item, _headers(item))
            if isinstance(item, Notification)
            else (self.topic(lane), item, key, None, list(headers))
            for item in items
        ]
        return self._produce(drafts, partition)

    def transaction(self, lane: str, batches: Iterable[tuple[list[Notification], bool]]) -> None:
        """Produce batches to partition 0, each in a transaction that commits, or else aborts."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self.prefix}-tx",
                **_QUIET,
            }
        )
        producer.init_transactions(_ASK_S)
        for batch, commits in batches:
            producer.begin_transaction()
            for one in batch:
                producer.produce(self.topic(lane), value=encode(one), key=one.id, partition=0)
            producer.flush(_ASK_S)
            if commits:
                producer.commit_transaction(_ASK_S)
            else:
                producer.abort_transaction(_ASK_S)

    def inflating(self, topic: str, size: int) -> int:
        """Produce one record of so many zero bytes to partition 0, compressed by zstd; its offset."""
        told: list[Any] = []
        producer = Producer(
            {
                **_QUIET,
                "bootstrap.servers": self._bootstrap,
                "compression.type": "zstd",
                "message.max.bytes": 1_000_000_000,
            }
        )
        producer.produce(
            topic, bytes(size), partition=0, on_delivery=lambda *answer: told.append(answer)
        )
        producer.flush(_ACKNOWLEDGED_S)
        ((error, message),) = told
        assert error is None, error
        return int(message.offset())

    def _produce(self, drafts: Sequence[Any], partition: int | None) -> list[Sent]:
        sent: dict[int, Sent] = {}
        failed: list[Any] = []
        producer = self._writer()
        for number, (topic, value, key, one, headers) in enumerate(drafts):

            def delivered(
                error: Any, message: Any, number: int = number, one: Notification | None = one
            ) -> None:
                if error is not None:
                    failed.append(error)
                    return
                place = Place(message.topic(), message.partition())
                keys = keys_of(one) if one is not None else []
                sent[number] = Sent(place, message.offset(), message.value(), one, keys)

            producer.produce(
                topic,
                value=value,
                key=key,
                headers=headers,
                on_delivery=delivered,
                partition=ANY_PARTITION if partition is None else partition,
            )
            producer.poll(0)
        producer.flush(_ACKNOWLEDGED_S)
        assert not failed, failed[:3]
        assert len(sent) == len(drafts), "some were not acknowledged"
        return [sent[number] for number in range(len(drafts))]

    # -- what the group did --

    def committed(self, topics: Iterable[str]) -> dict[Place, Committed]:
        """What the group committed, per partition; offset -1 where there is no commit."""
        places = [TopicPartition(t, n) for t in topics for n in range(self.partitions(t))]
        if not places:
            return {}
        # Not by the admin client: it aborts the process (an assertion in librdkafka 2.16) when the
        # coordinator goes away while it asks.
        found = self._watcher().committed(places, timeout=_ASK_S)
        return {
            Place(p.topic, p.partition): Committed(max(p.offset, -1), p.metadata or "")
            for p in found
        }

    def commit_as_foreigner(
        self, place: Place, offset: int, metadata: str = "", group: str = ""
    ) -> None:
        """Commit for the group from outside; only while it has no member."""
        with closing(self._reader(group or self.group)) as reader:
            reader.commit(
                offsets=[TopicPartition(place.topic, place.partition, offset, metadata)],
                asynchronous=False,
            )

    def members(self) -> dict[str, set[Place]]:
        """Who holds what, by worker id."""
        asked = self.admin.describe_consumer_groups([self.group], request_timeout=_ASK_S)
        return {
            member.client_id: {
                Place(p.topic, p.partition) for p in member.assignment.topic_partitions
            }
            for member in asked[self.group].result().members
        }

    def coordinator(self) -> int:
        """The number of the broker that coordinates the group."""
        asked = self.admin.describe_consumer_groups([self.group], request_timeout=_ASK_S)
        return int(asked[self.group].result().coordinator.id)

    # -- reading --

    def dead_letters(self) -> list[DeadLetter]:
        """Everything in the dead-letter topic."""
        return [
            DeadLetter(
                m.key(),
                m.value(),
                {k: (v or b"").decode("utf-8", "replace") for k, v in m.headers() or ()},
            )
            for m in self.read(dead_letter_topic(self.prefix))
        ]

    def trace(self) -> list[bytes]:
        """The values of the trace topic."""
        return [m.value() for m in self.read(trace_topic(self.prefix))]

    def outcomes(self) -> list[bytes]:
        """The values of the topic of outcomes."""
        return [m.value() for m in self.read(outcome_topic(self.prefix))]

    def read(self, topic: str) -> list[Any]:
        """Every message of a topic, up to its end as of now."""
        ends = {p: end for p, end in self.ends(topic).items() if end}
        if not ends:
            return []
        with closing(self._reader()) as reader:
            reader.assign([TopicPartition(p.topic, p.partition, 0) for p in ends])
            read: list[Any] = []

            def at_the_end() -> bool:
                read.extend(m for m in reader.consume(10_000, 0.2) if m.error() is None)
                where = reader.position([TopicPartition(p.topic, p.partition) for p in ends])
                at = {Place(p.topic, p.partition): p.offset for p in where}
                return all(at[place] >= end for place, end in ends.items())

            await_(at_the_end, what=f"{topic} is read")
        return read

    def close(self) -> None:
        """Give back connections; idempotent."""
        member, self._member = self._member, None
        if member is not None:
            member.close()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, **_QUIET})

    def _watcher(self) -> Consumer:
        """Of the group by name, and never a member of it."""
        if self._member is None:
            self._member = self._reader(self.group)
        return self._member

    def _writer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    **_QUIET,
                    "bootstrap.servers": self._bootstrap,
                    "enable.idempotence": True,
                    "partitioner": "murmur2_random",
                    "message.max.bytes": 8 << 20,
                    "linger.ms": 2,
                }
            )
        return self._producer

    def _reader(self, group: str = "") -> Consumer:
        return Consumer(
            {
                **_QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": group or f"{self.prefix}-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 8 << 20,
            }
        )


def _headers(one: Notification) -> list[tuple[str, bytes]]:
    return [("hongyan-id", one.id.encode())]
