"""Copies of deliveries: new notifications, produced to their lanes' topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from backends.kafka import clients as kafka
from backends.settings import KafkaSettings
from message.envelope import Notification, decode

log = structlog.get_logger(__name__)
ANSWER_S: Final = 30.0
"""Longest wait for Kafka's acknowledgements."""
_FULL_WAIT_S: Final = 0.2

OnAccepted = Callable[[Notification, kafka.Message], None]
"""Gets an acknowledged notification and its record (sending/accepted_trace.py)."""


class CopyProducer:
    """For one thread at a time. Connects at its first copy."""

    def __init__(self, settings: KafkaSettings, on_accepted: OnAccepted) -> None:
        self._settings = settings
        self._on_accepted = on_accepted
        self._producer: Any = None
        self._topics: Any = None

    def produce(self, copies: Sequence[dict[str, Any]]) -> set[str]:
        """Produces envelopes, whose fields are given. Returns the ids that Kafka acknowledged within
        ANSWER_S; of the others it may have some. Raises KafkaTrouble, EnvelopeError, and SettingsError
        while a file that `kafka.client` names cannot be read."""
        self._connect()
        done: set[str] = set()
        for fields in copies:
            value = msgspec.json.encode(fields)
            self._send(decode(value), value, done)
        self._producer.flush(ANSWER_S)
        if len(done) < len(
            copies
        ):  # a topic may be made meanwhile, and a producer may have ended for good
            self._producer = None
        return done

    def _connect(self) -> None:
        if self._producer is None:
            topics = kafka.existing_topics(self._settings)
            self._producer = kafka.producer(self._settings, client_id="hongyan-copies")
            self._topics = topics

    def _send(self, notification: Notification, value: bytes, done: set[str]) -> None:
        topic = notification.lane.topic(self._settings.topic_prefix)
        if self._topics is not None and topic not in self._topics:
            log.error("copy_without_topic", topic=topic, what="run `hongyan topics apply`")
            return

        def delivered(error: kafka.KafkaError | None, message: kafka.Message) -> None:
            if error is not None:
                log.warning("copy_not_accepted", id=notification.id, cause=error.str())
                return
            done.add(notification.id)
            self._on_accepted(notification, message)

        while True:
            try:
                self._producer.produce(
                    topic,
                    key=notification.kafka_key.encode(),
                    value=value,
                    headers=[("hongyan-id", notification.id.encode())],
                    on_delivery=delivered,
                )
            except BufferError:
                self._producer.poll(_FULL_WAIT_S)
                continue
            except kafka.KafkaException as exc:
                log.warning("copy_not_produced", id=notification.id, cause=str(exc))
            return
