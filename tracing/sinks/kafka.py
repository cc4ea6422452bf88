"""Trace events into the trace topic of Kafka (tracing/trace_records.py).

A whole batch is encoded, then numbered, then produced. What cannot be encoded was never numbered, so the
recorder counts it. What is lost after its number is a gap, which no header counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from backends.kafka import clients as kafka
from backends.settings import Settings
from message.vocabulary import trace_topic
from tracing.drops import Drops
from tracing.events import TraceEvent
from tracing.record_headers import record_headers
from tracing.recorder import Sink, SinkBroken
from tracing.trace_records import NO_EVENTS, SINK, TraceLife, records

_PRODUCER: Final[Mapping[str, int | str | bool]] = {
    "linger.ms": 50,
    "compression.type": "zstd",
    "queue.buffering.max.kbytes": 16_384,
}
_PATIENCE_S: Final = 5.0
"""Seconds of waiting for a full producer before a record is given up."""
_IDLE_CLOSE_S: Final = 1.0
"""Seconds of waiting for the end of a life without any event: its loss leaves nothing in doubt."""
_UNREACHABLE: Final = "unreachable"
_BROKEN: Final = "produce_failed"


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
            self._tried(0, NO_EVENTS, headers, timeout_s)
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
