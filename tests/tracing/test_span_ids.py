"""Contexts of messages whose sender has none: stable, well formed, sampled as OpenTelemetry samples."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from message.trace_context import trace_context
from tracing.sinks.span_ids import TRACE_BYTES, number_of, traceparent_of

IDS = [f"0192f3c47b1a7cc0a1b2c3d4e5f6{number:04x}" for number in range(200)]


def test_a_message_has_one_context_and_it_is_valid() -> None:
    found = [traceparent_of(one, 1.0) for one in IDS]
    assert found == [trace_context(one) for one in found]
    assert len(set(found)) == len(IDS)
    assert found[0] == traceparent_of(IDS[0], 1.0)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_the_flag_is_opentelemetrys_own_decision(ratio: float) -> None:
    sampler = TraceIdRatioBased(ratio)
    for one in IDS:
        decided = sampler.should_sample(None, number_of(one, TRACE_BYTES), "x").decision
        wanted = "01" if decided is Decision.RECORD_AND_SAMPLE else "00"
        assert traceparent_of(one, ratio).endswith(f"-{wanted}"), one
