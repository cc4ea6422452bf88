"""Records of the trace topic: one holds a JSON array of events, since a record for each would cost more
than a send. Their headers make missing events countable (tracing/record_headers.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tracing.events import TraceEvent

SINK: Final = "kafka"
"""Name of the trace topic among the drops."""
RECORD_BYTES: Final = 256 * 1024
"""At most; one event alone may be longer."""
RECORD_EVENTS: Final = 250
"""At most; as many as usually fit."""
NO_EVENTS: Final = b"[]"
"""Value of the record that ends a life."""
_RANDOM_BYTES: Final = 8
_encoder = msgspec.json.Encoder()


class TraceLife:
    """One life of the trace: its name, and the numbers of its events. Used by one thread, which writes the
    records.

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
