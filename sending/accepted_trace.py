"""Trace events of notifications that Kafka acknowledged: copied, replayed, or sent from the command line
(tracing/accepted_events.py)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from msgspec.structs import replace

from backends.settings import Settings
from message.envelope import EnvelopeError, Notification, decode
from tracing import open_recorder
from tracing.accepted_events import AcceptedPlace, accepted_events, unreadable_event
from tracing.events import Recorder, TraceEvent
from tracing.masks import HashReceiver, hasher, no_hash

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


class AcknowledgedPlace(Protocol):
    """Place of an acknowledged record (`hongyan_client.records.Acknowledged`)."""

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The partition."""
        ...

    @property
    def offset(self) -> int:
        """The offset."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """Epoch milliseconds of the record, as Kafka keeps it."""
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
        self._recorder.record(self._events(notification, _place_of(message)))

    def acknowledged(
        self,
        notification: Notification,
        record: AcknowledgedPlace,
        traceparent: str | None = None,
    ) -> None:
        """Records a notification that the client's publisher acknowledged, and its record's trace
        context."""
        place = AcceptedPlace(
            f"{record.topic}/{record.partition}/{record.offset}", record.timestamp_ms
        )
        self._recorder.record(self._events(notification, place, traceparent=traceparent))

    def replayed(self, letter: ReplayedLetter, message: Any) -> None:
        """Records the replay of a dead letter; as one event without a delivery if it cannot be read."""
        detail = f"replay of the dead letter of {letter.origin}"
        place = _place_of(message)
        try:
            events = self._events(decode(letter.value or b""), place, detail)
        except EnvelopeError:
            named = (dict(letter.headers).get(_ID) or b"").decode("ascii", "replace")[:64]
            events = [unreadable_event(place, self._worker, named, letter.lane, detail)]
        self._recorder.record(events)

    def _events(
        self,
        notification: Notification,
        place: AcceptedPlace,
        detail: str | None = None,
        traceparent: str | None = None,
    ) -> list[TraceEvent]:
        return accepted_events(
            notification, place, self._worker, self._hash_receiver, detail, traceparent
        )


def _place_of(message: Any) -> AcceptedPlace:
    origin = f"{message.topic()}/{message.partition()}/{message.offset()}"
    return AcceptedPlace(origin, message.timestamp()[1])


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
