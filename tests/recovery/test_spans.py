"""A recovery's delivery arrives at a collector as spans, in the trace of its message."""

from __future__ import annotations

import msgspec
import pytest

from backends.settings import TelemetrySettings
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, until
from tests.tracing.collector import Collector, attributes_of
from tracing.spans import CALL, DELIVER


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_recovery_sends_again_is_in_the_trace_of_its_message(ground: MakeGround) -> None:
    one = ground()
    with Collector() as collector:
        telemetry = TelemetrySettings(otlp_endpoint=collector.endpoint)
        one.settings = msgspec.structs.replace(one.settings, telemetry=telemetry)
        first, second = one.waiting(2)
        with one.recovery() as opened:
            opened.recovery.start()

            def ended() -> bool:
                opened.recovery.resend(LANE)
                return one.states() == {"SENT": 2}

            until(ended)
            until(lambda: len(collector.spans) == 4)
    traces = {attributes_of(s)["hongyan.message_id"]: s.trace_id for s in collector.spans}
    assert set(traces) == {first.notification.id, second.notification.id}
    assert len(set(traces.values())) == 2
    ids = {span.span_id for span in collector.spans if span.name == DELIVER}
    calls = [span for span in collector.spans if span.name == CALL]
    assert {span.parent_span_id for span in calls} == ids
    assert all(attributes_of(span)["hongyan.state"] == "SENT" for span in collector.spans)
