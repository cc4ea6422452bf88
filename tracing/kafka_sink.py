"""Trace events into Kafka: one record holds a JSON array of events, since a record for each would cost
more than a send."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from backends.kafka import clients as kafka
from backends.settings import Settings
from message.vocabulary import trace_topic
from tracing.events import TraceEvent
from tracing.recorder import Drops, Sink

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
_encoder = msgspec.json.Encoder()


def open_kafka_sink(settings: Settings, drops: Drops) -> Sink:
    """Returns a sink with a producer of its own."""
    client = kafka.producer(settings.kafka, client_id="hongyan-trace", changes=_PRODUCER)
    return KafkaSink(client, trace_topic(settings.kafka.topic_prefix), drops)


class KafkaSink:
    """Produces without waiting; counts events that the broker does not acknowledge as dropped."""

    def __init__(
        self,
        producer: Any,
        topic: str,
        drops: Drops,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._drops = drops
        self._monotonic = monotonic

    def write(self, events: Sequence[TraceEvent]) -> None:
        """Queues the batch in the producer; waits a little where that is full."""
        for count, value in records(events):
            self._produce(count, value)
        self._producer.poll(0)

    def close(self, timeout_s: float) -> None:
        """Waits for records under way."""
        self._producer.flush(timeout_s)

    def _produce(self, count: int, value: bytes) -> None:
        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self._drops.add("kafka", error.name().lower().lstrip("_"), count)

        deadline = self._monotonic() + _PATIENCE_S
        while True:
            try:
                self._producer.produce(self._topic, value=value, on_delivery=delivered)
                return
            except BufferError:
                if self._monotonic() >= deadline:
                    self._drops.add("kafka", "unreachable", count)
                    return
            self._producer.poll(0.1)


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
