"""Ids of traces and spans that follow from texts, so that a claim's repeats have the same. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

TRACE_BYTES: Final = 16
SPAN_BYTES: Final = 8
_RATIO_BITS: Final = 64


def number_of(text: str, size: int) -> int:
    """Returns an id of `size` bytes, evenly spread, the same for the same text; never 0."""
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1


def traceparent_of(message_id: str, sample_ratio: float) -> str:
    """Returns the W3C trace context of a message whose sender has none. Trace and flag are those that a
    worker would choose for it: OpenTelemetry's TraceIdRatioBased looks at the last 64 bits."""
    trace = number_of(message_id, TRACE_BYTES)
    sampled = trace & ((1 << _RATIO_BITS) - 1) < round(sample_ratio * (1 << _RATIO_BITS))
    return f"00-{trace:032x}-{number_of(f'{message_id}/sender', SPAN_BYTES):016x}-{sampled:02x}"
