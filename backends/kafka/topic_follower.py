"""Follows one topic from given places, outside of any group; the caller keeps the places.

One thread's. Every method raises KafkaUnavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from backends.kafka.clients import (
    KafkaException,
    KafkaUnavailable,
    Message,
    TopicPartition,
    admin,
    consumer,
    is_embedded,
)
from backends.kafka.group_positions import topic_ids
from backends.settings import KafkaSettings

_ASK_S: Final = 10.0


class TopicExtent(NamedTuple):
    """A topic as the broker describes it."""

    topic_id: str
    """Empty on the embedded cluster."""
    bounds: dict[int, tuple[int, int]]
    """First offset and end of each partition."""


class TopicFollower:
    """Connects at the first use; prefetched records are bounded by `backends/kafka/config.py`."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = msgspec.structs.replace(
            settings, group_id=f"{settings.group_id}-reader", group_instance_id=""
        )
        self._topic = topic
        self._reader = consumer(self._settings, protocol="classic", client_id="hongyan-follower")

    def extent(self) -> TopicExtent | None:
        """Returns the topic's id and bounds; None if there is no such topic."""
        try:
            client = admin(self._settings, quiet=True)
            known = client.list_topics(timeout=_ASK_S).topics.get(self._topic)
            if known is None or not known.partitions:
                return None
            found = {} if is_embedded(client) else topic_ids(client, [self._topic])
            bounds = {
                partition: self._reader.get_watermark_offsets(
                    TopicPartition(self._topic, partition), timeout=_ASK_S
                )
                for partition in known.partitions
            }
        except KafkaException as exc:
            raise self._away(exc) from exc
        return TopicExtent(found.get(self._topic, ""), bounds)

    def assign(self, places: Mapping[int, int]) -> None:
        """Reads on from these offsets, by partition."""
        wanted = [TopicPartition(self._topic, p, offset) for p, offset in places.items()]
        try:
            self._reader.assign(wanted)
        except KafkaException as exc:
            raise self._away(exc) from exc

    def read(self, most: int, wait_s: float) -> list[Message]:
        """Returns records as they come, at most so many; none after `wait_s` seconds without one."""
        try:
            found = self._reader.consume(most, wait_s)
        except KafkaException as exc:
            raise self._away(exc) from exc
        return [message for message in found if message.error() is None]

    def close(self) -> None:
        """Leaves the brokers; idempotent."""
        self._reader.close()

    def _away(self, exc: KafkaException) -> KafkaUnavailable:
        return KafkaUnavailable(f"{self._topic} cannot be read ({exc.args[0].str()})")
