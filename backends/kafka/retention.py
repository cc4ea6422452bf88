"""Time for which Kafka keeps the lanes' topics: the ledger must keep their rows for as long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backends.kafka.clients import KafkaTrouble, KafkaUnavailable, admin, is_embedded
from backends.kafka.topics import configs_of, metadata_of
from backends.settings import Settings
from message.vocabulary import LANES

_DAY_MS: Final = 86_400_000


class TopicKeptForever(KafkaTrouble):
    """A topic that keeps its records for ever; the text says what to do."""


def topic_days(settings: Settings, planned_days: int) -> int:
    """Returns the whole days after which no lane's record can be read again: `recovery.topic_days`, else
    by the topics' own configuration. At least `planned_days`, for which the policy wants topics to be kept.
    Raises KafkaUnavailable, TopicKeptForever."""
    if settings.recovery.topic_days:
        return settings.recovery.topic_days
    client = admin(settings.kafka, quiet=True)
    try:
        there = metadata_of(client).topics
    except KafkaUnavailable as exc:
        raise KafkaUnavailable(
            f"{exc}; or say with recovery.topic_days how long topics are kept"
        ) from exc
    if is_embedded(client):
        return planned_days
    names = [name for lane in LANES if (name := lane.topic(settings.kafka.topic_prefix)) in there]
    found = configs_of(client, names)
    kept_ms = [_kept_ms(name, found.get(name, {})) for name in names]
    return -(-max([planned_days * _DAY_MS, *kept_ms]) // _DAY_MS)


def _kept_ms(topic: str, config: Mapping[str, str]) -> int:
    """Returns retention plus segment time, since Kafka removes whole segments. Raises KafkaTrouble."""
    if "retention.ms" not in config or "segment.ms" not in config:
        raise KafkaUnavailable(
            f"how long Kafka keeps {topic} cannot be read: say it with recovery.topic_days"
        )
    retention_ms = int(config["retention.ms"])
    if retention_ms < 0 or "delete" not in config.get("cleanup.policy", "delete"):
        raise TopicKeptForever(
            f"Kafka keeps {topic} for ever, so the ledger must keep every day: set retention.ms for it with"
            " kafka-configs.sh"
        )
    return retention_ms + int(config["segment.ms"])
