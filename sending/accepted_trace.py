"""Trace events of notifications that Kafka acknowledged: sent, copied or replayed.

Without them nobody could name a notification that Kafka removed before anybody read it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from msgspec.structs import replace

from backends.settings import Settings
from message.envelope import EnvelopeError, Notification, decode
from message.keys import delivery_key, normalise_receiver
from tracing import open_recorder
from tracing.events import Recorder, Stage, TraceEvent
from tracing.masks import HashReceiver, hasher, mask, no_hash, template_of

_ID: Final = "hongyan-id"


class ReplayedLetter(Protocol):
    """The part of a dead letter that its replay's event needs."""

    @property
    def value(self) -> bytes | None:
        """The record's value."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The record's headers."""
        ...

    @property
    def origin(self) -> Any:
        """The place of the record that it is about."""
        ...

    @property
    def lane(self) -> str:
        """The lane of that record."""
        ...


class AcceptedTrace:
    """Records one event for each delivery. Its methods never raise over a notification."""

    def __init__(
        self, recorder: Recorder, worker: str, hash_receiver: HashReceiver = no_hash
    ) -> None:
        """`worker` names the command in the trace; `hash_receiver` is `tracing.masks.hasher`'s."""
        self._recorder = recorder
        self._worker = worker
        self._hash_receiver = hash_receiver

    def sent(self, notification: Notification, message: Any) -> None:
        """Records an acknowledged notification. `message`: the record, from its delivery report."""
        copied = f"copy of {notification.resend_of}" if notification.resend_of else None
        self._recorder.record(self._events(notification, message, copied))

    def replayed(self, letter: ReplayedLetter, message: Any) -> None:
        """Records the replay of a dead letter; as one event without a delivery if it cannot be read."""
        detail = f"replay of the dead letter of {letter.origin}"
        try:
            events = self._events(decode(letter.value or b""), message, detail)
        except EnvelopeError:
            named = dict(letter.headers).get(_ID) or b""
            event = self._event(message, detail, named.decode("ascii", "replace")[:64], letter.lane)
            events = [event]
        self._recorder.record(events)

    def _events(
        self, notification: Notification, message: Any, detail: str | None
    ) -> list[TraceEvent]:
        channel = notification.channel
        named = [normalise_receiver(channel, one) for one in notification.receivers]
        event = self._event(message, detail, notification.id, notification.lane.name)
        event.biz_id = notification.biz_id
        event.template, event.created_at = template_of(notification), notification.created_at
        return [
            replace(
                event,
                delivery_key=delivery_key(notification.id, channel, receiver),
                receiver=mask(channel, receiver),
                receiver_hash=self._hash_receiver(channel, receiver),
            )
            for receiver in dict.fromkeys(named)
        ]

    def _event(self, message: Any, detail: str | None, message_id: str, lane: str) -> TraceEvent:
        """Its time is the record's: the report of it may come after a worker has sent it."""
        return TraceEvent(
            at=message.timestamp()[1],
            stage=Stage.ACCEPTED,
            message_id=message_id,
            lane=lane,
            worker=self._worker,
            detail=detail,
            origin=f"{message.topic()}/{message.partition()}/{message.offset()}",
        )


@contextmanager
def accepted_trace(settings: Settings, command: str) -> Iterator[AcceptedTrace]:
    """Opens the trace of one command; its events are written before it closes. They go to Kafka alone: a
    producer needs no database."""
    to_kafka = replace(settings, trace=replace(settings.trace, database=False))
    recorder = open_recorder(to_kafka, f"{command}-{socket.gethostname()}-{os.getpid()}")
    try:
        yield AcceptedTrace(recorder, command, hasher(settings.outcomes.hash_key))
    finally:
        recorder.close()
