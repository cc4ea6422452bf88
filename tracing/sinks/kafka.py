"""Trace events into Kafka: one record holds a JSON array of events, since a record for each would cost
more than a send.

Each record's headers make missing events countable (tracing/record_headers.py). A whole batch is encoded,
then numbered, then produced. What cannot be encoded was never numbered, so the recorder counts it. What is
lost after its number is a gap, which no header counts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.settings import Settings
from message.vocabulary import trace_topic
from tracing.drops import Drops
from tracing.events import TraceEvent
from tracing.record_headers import record_headers
from tracing.recorder import Sink, SinkBroken

SINK: Final = "kafka"
"""Name of this sink among the drops."""
RECORD_BYTES: Final = 256 * 1024
"""At most; one event alone may be longer."""
RECORD_EVENTS: Final = 250
"""At most; as many as usually fit."""
_PRODUCER: Final[Mapping[str, int | str | bool]] = {
    "linger.ms": 50,
    "compression.type": "zstd",
    "queue.buffering.max.kbytes": 16_384,
}
_PATIENCE_S: Final = 5.0
"""Seconds of waiting for a full producer before a record is given up."""
_IDLE_CLOSE_S: Final = 1.0
"""Seconds of waiting for the end of a life without any event: its loss leaves nothing in doubt."""
_RANDOM_BYTES: Final = 8
_NO_EVENTS: Final = b"[]"
_UNREACHABLE: Final = "unreachable"
_BROKEN: Final = "produce_failed"
_encoder = msgspec.json.Encoder()


class TraceLife:
    """One life of the trace: its name, and the numbers of its events. Used by the sink's thread alone.

    It belongs to a recorder, not to a producer. A producer that is opened again after an error goes on with
    the numbers: events that the old one lost are a gap, and nothing is counted twice.
    """

    def __init__(self, process: str) -> None:
        """`process`: id of the worker or other process."""
        self.name = f"{process}/{secrets.token_hex(_RANDOM_BYTES)}"
        self.numbered = 0
        """Events that have a number: the next one's number. Written by `take`."""

    def take(self, events: int) -> int:
        """Numbers so many events. Returns the number of the first."""
        first = self.numbered
        self.numbered += events
        return first


def open_kafka_sink(settings: Settings, life: TraceLife, drops: Drops) -> Sink:
    """Returns a sink with a producer of its own, which goes on with the life. Raises SettingsError."""
    client = kafka.producer(settings.kafka, client_id="hongyan-trace", changes=_PRODUCER)
    return KafkaSink(client, trace_topic(settings.kafka.topic_prefix), drops, life)


class KafkaSink:
    """Produces without waiting; counts events that the broker does not acknowledge as dropped."""

    def __init__(
        self,
        producer: Any,
        topic: str,
        drops: Drops,
        life: TraceLife,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._drops = drops
        self._life = life
        self._monotonic = monotonic

    def write(self, events: Sequence[TraceEvent]) -> None:
        """Queues the batch in the producer; waits a little where that is full. Raises SinkBroken if the
        producer refused a record: its events are counted. Any other error comes before the numbers."""
        made = list(records(events))
        lost = self._drops.unwritten(SINK)
        cause = ""
        for count, value in made:
            headers = record_headers(self._life.name, self._life.take(count), lost)
            cause = self._tried(count, value, headers, _PATIENCE_S) or cause
        cause = self._polled() or cause
        if cause:
            raise SinkBroken(cause)

    def close(self, timeout_s: float, last: bool = False) -> None:
        """Waits for records under way. `last`: ends the life, too, with an empty record."""
        if last:
            first, lost = self._life.numbered, self._drops.unwritten(SINK)
            if not first and not lost:
                timeout_s = min(timeout_s, _IDLE_CLOSE_S)
            until = self._monotonic() + timeout_s
            headers = record_headers(self._life.name, first, lost, end=True)
            self._tried(0, _NO_EVENTS, headers, timeout_s)
            timeout_s = max(0.0, until - self._monotonic())
        self._producer.flush(timeout_s)

    def _tried(
        self, count: int, value: bytes, headers: list[tuple[str, bytes]], patience_s: float
    ) -> str:
        """Produces one record. Returns the cause if the producer refused it, and counts its events."""
        try:
            self._produce(count, value, headers, patience_s)
        except Exception as exc:  # any refusal: the events have their numbers and are a gap
            self._count(_BROKEN, count)
            return str(exc) or type(exc).__name__
        return ""

    def _polled(self) -> str:
        """Serves the delivery reports. Returns the cause of an error."""
        try:
            self._producer.poll(0)
        except Exception as exc:  # the batch is numbered and queued: it must not count as refused
            return str(exc) or type(exc).__name__
        return ""

    def _produce(
        self, count: int, value: bytes, headers: list[tuple[str, bytes]], patience_s: float
    ) -> None:
        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self._count(error.name().lower().lstrip("_"), count)

        deadline = self._monotonic() + patience_s
        while True:
            try:
                self._producer.produce(
                    self._topic, value=value, headers=headers, on_delivery=delivered
                )
                return
            except BufferError:
                if self._monotonic() >= deadline:
                    self._count(_UNREACHABLE, count)
                    return
            self._producer.poll(0.1)

    def _count(self, reason: str, events: int) -> None:
        if events:
            self._drops.add(SINK, reason, events)


def records(events: Sequence[TraceEvent], limit: int = RECORD_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yields the events as (number of events, JSON array), each array within `limit` where it can be."""
    for start in range(0, len(events), RECORD_EVENTS):
        yield from _within(events[start : start + RECORD_EVENTS], limit)


def _within(events: Sequence[TraceEvent], limit: int) -> Iterator[tuple[int, bytes]]:
    """Encodes the events at once, or in halves where the array is longer than `limit`."""
    value = _encoder.encode(events)
    if len(value) <= limit or len(events) == 1:
        yield len(events), value
        return
    half = len(events) // 2
    yield from _within(events[:half], limit)
    yield from _within(events[half:], limit)
