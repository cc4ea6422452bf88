"""Produces notifications from the command line: checks each, then waits for Kafka's acknowledgement.

Applications use `hongyan_client`, whose publisher this module uses, too. It serves people, tests and the
demo.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.kafka import config as kafka_config
from backends.settings import KafkaSettings, SettingsError
from hongyan_client.delivery_errors import TAKEN_BACK
from hongyan_client.errors import BufferFull, SendFailed, WrongProperties
from hongyan_client.publisher import Publisher
from hongyan_client.records import Acknowledged, Record
from message.envelope import EnvelopeError, Notification
from message.keys import delivery_key, normalise_receiver
from sending.notification_check import Check as Check
from sending.notification_check import Ready as Ready
from sending.notification_check import Render as Render
from sending.notification_check import prepared as prepared
from tracing.masks import mask

DEADLINE_S: Final = 60.0
"""Longest wait for room in the producer's buffer."""
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


OnAccepted = Callable[[Notification, Acknowledged], None]
"""Gets an acknowledged notification and its place (sending/accepted_trace.py)."""


class NotificationSender:
    """Publishes notifications and counts their outcomes. For one thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        outcome: EnqueueOutcome,
        keep: float = 0,
        on_accepted: OnAccepted = lambda _notification, _place: None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Keeps the first `keep` notifications in the outcome. Calls `on_accepted` for each acknowledged
        one. `deadline_s`: longest wait for room in the buffer. Raises KafkaUnavailable, SettingsError."""
        self.outcome = outcome
        self._keep = keep
        self._on_accepted = on_accepted
        self._deadline_s = deadline_s
        self._settings = settings
        self._topics = kafka.existing_topics(settings)
        self._publisher = _opened(settings)

    def send(self, ready: Ready) -> None:
        """Queues one. Raises KafkaUnavailable where the buffer stays full until the deadline."""
        notification = ready.notification
        topic = notification.lane.topic(self._settings.topic_prefix)
        if self._topics is not None and topic not in self._topics:
            self._fail(notification.id, topic, "no such topic; run `hongyan topics apply`")
            return
        headers = [("hongyan-id", notification.id.encode())]
        record = Record(topic, notification.kafka_key.encode(), ready.value, headers)
        try:
            self._publisher.publish_to(record, partial(self._ended, notification), self._deadline_s)
        except BufferFull as exc:
            raise kafka.KafkaUnavailable(
                f"Kafka at {self._settings.bootstrap} acknowledged nothing within "
                f"{self._deadline_s:g} s, and the buffer is full; start it, then send the rest again "
                "with the same ids"
            ) from exc

    def finish(self, timeout_s: float) -> None:
        """Waits for open acknowledgements, for at most `timeout_s` seconds. Those without one are in
        doubt."""
        self.outcome.in_doubt = self._publisher.close(timeout_s)

    def _ended(self, notification: Notification, end: Acknowledged | SendFailed) -> None:
        """Notes one end. Runs in the thread that polls; `finish` waits for all."""
        if isinstance(end, SendFailed):
            if end.code in TAKEN_BACK:
                return  # `finish` counts it
            topic = notification.lane.topic(self._settings.topic_prefix)
            self._fail(notification.id, topic, str(end))
            return
        outcome = self.outcome
        kept = len(outcome.notifications) < self._keep
        outcome.sent += 1
        outcome.last = EnqueuedNotification(
            notification.id,
            end.topic,
            end.partition,
            end.offset,
            notification.lane.name,
            _deliveries(notification) if kept else [],
        )
        if kept:
            outcome.notifications.append(outcome.last)
        self._on_accepted(notification, end)

    def _fail(self, message_id: str, topic: str, cause: str) -> None:
        self.outcome.failed.append(Failed(message_id, topic, cause))


def _opened(settings: KafkaSettings) -> Publisher:
    """Returns the publisher. Raises SettingsError."""
    kafka_config.check_client(settings.client)
    try:
        return Publisher(settings.bootstrap, client_id="hongyan-send", properties=settings.client)
    except WrongProperties as exc:
        raise SettingsError(f"kafka.client: {exc}") from exc
