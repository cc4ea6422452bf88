"""Produces notifications from the command line: checks each, then waits for Kafka's acknowledgement.

Applications use a client of their own; this module serves people, tests and the demo.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.settings import KafkaSettings
from message.envelope import EnvelopeError, Notification
from message.keys import delivery_key, normalise_receiver
from sending.notification_check import Check as Check
from sending.notification_check import Ready as Ready
from sending.notification_check import Render as Render
from sending.notification_check import prepared as prepared
from tracing.masks import mask

_FULL_WAIT_S: Final = 0.2
_decoder = msgspec.json.Decoder(dict[str, Any])


class BadLine(msgspec.Struct, frozen=True):
    """A rejected line; nothing of it was sent."""

    line: int
    code: str
    path: str
    detail: str


class AddressedDelivery(msgspec.Struct, frozen=True):
    """The name of one delivery."""

    delivery_key: str
    receiver: str
    """Masked."""


class EnqueuedNotification(msgspec.Struct, frozen=True):
    """One acknowledged notification and its place in Kafka."""

    id: str
    topic: str
    partition: int
    offset: int
    lane: str = ""
    deliveries: list[AddressedDelivery] = []
    """Filled for the notifications that a sender keeps."""


class Failed(msgspec.Struct, frozen=True):
    """One notification that Kafka refused or did not confirm."""

    id: str
    topic: str
    cause: str


class EnqueueOutcome(msgspec.Struct):
    """Result of a run. `in_doubt` counts those not acknowledged in time; Kafka may have them."""

    sent: int = 0
    last: EnqueuedNotification | None = None
    failed: list[Failed] = []
    bad: list[BadLine] = []
    in_doubt: int = 0
    notifications: list[EnqueuedNotification] = []
    """The first acknowledged ones, as many as the sender keeps."""
    warnings: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether everything was sent."""
        return not (self.failed or self.bad or self.in_doubt)


def read_lines(
    lines: Iterable[bytes],
    bad: list[BadLine],
    now_ms: int | None = None,
    render: Render | None = None,
    check: Check | None = None,
) -> Iterator[Ready]:
    """Yields the good lines, checked. Adds the bad ones to `bad` by number; skips empty lines."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            at = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            yield prepared(_fields(line), at, render, check)
        except EnvelopeError as exc:
            bad.append(BadLine(number, exc.code, exc.path, exc.detail))


def _deliveries(notification: Notification) -> list[AddressedDelivery]:
    """Returns the names of its deliveries, one for each distinct receiver."""
    channel = notification.channel
    receivers = dict.fromkeys(normalise_receiver(channel, one) for one in notification.receivers)
    return [
        AddressedDelivery(delivery_key(notification.id, channel, one), mask(channel, one))
        for one in receivers
    ]


def _fields(line: bytes) -> dict[str, Any]:
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as exc:
        raise EnvelopeError("not_an_object", "$", "must be one JSON object") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise EnvelopeError("not_json", "$", f"not JSON: {exc}") from exc


OnAccepted = Callable[[Notification, kafka.Message], None]
"""Gets an acknowledged notification and its record (sending/accepted_trace.py)."""


class NotificationSender:
    """Produces notifications and counts their outcomes. For one thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        outcome: EnqueueOutcome,
        keep: float = 0,
        on_accepted: OnAccepted = lambda _notification, _message: None,
    ) -> None:
        """Keeps the first `keep` notifications in the outcome. Calls `on_accepted` for each acknowledged
        one. Raises KafkaUnavailable, SettingsError."""
        self.outcome = outcome
        self._keep = keep
        self._on_accepted = on_accepted
        self._prefix = settings.topic_prefix
        self._producer = kafka.producer(settings, client_id="hongyan-send")
        self._topics = kafka.existing_topics(settings)

    def send(self, ready: Ready) -> None:
        """Queues one; waits while the producer's buffer is full."""
        notification = ready.notification
        topic = notification.lane.topic(self._prefix)
        if self._topics is not None and topic not in self._topics:
            self._fail(notification.id, topic, "no such topic; run `hongyan topics apply`")
            return
        while not self._produce(topic, ready):
            self._producer.poll(_FULL_WAIT_S)
        self._producer.poll(0)

    def finish(self, timeout_s: float) -> None:
        """Waits for open acknowledgements, for at most `timeout_s` seconds."""
        self.outcome.in_doubt = self._producer.flush(timeout_s)

    def _produce(self, topic: str, ready: Ready) -> bool:
        notification = ready.notification
        message_id = notification.id

        def delivered(error: kafka.KafkaError | None, message: kafka.Message) -> None:
            if error is not None:
                self._fail(message_id, topic, error.str())
            else:
                self._note(notification, message)

        try:
            self._producer.produce(
                topic,
                key=notification.kafka_key.encode(),
                value=ready.value,
                headers=[("hongyan-id", message_id.encode())],
                on_delivery=delivered,
            )
        except BufferError:
            return False
        except kafka.KafkaException as exc:
            self._fail(message_id, topic, exc.args[0].str())
        return True

    def _note(self, notification: Notification, message: kafka.Message) -> None:
        outcome = self.outcome
        kept = len(outcome.notifications) < self._keep
        outcome.sent += 1
        outcome.last = EnqueuedNotification(
            notification.id,
            message.topic() or "",
            message.partition() or 0,
            message.offset() or 0,
            notification.lane.name,
            _deliveries(notification) if kept else [],
        )
        if kept:
            outcome.notifications.append(outcome.last)
        self._on_accepted(notification, message)

    def _fail(self, message_id: str, topic: str, cause: str) -> None:
        self.outcome.failed.append(Failed(message_id, topic, cause))
