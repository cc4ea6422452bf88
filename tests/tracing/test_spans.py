"""Trace events as spans, as the official protobuf schema reads them from a collector's requests."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from structlog.testing import capture_logs

from backends.settings import Settings, TelemetrySettings, TraceSettings
from simulator.servers.certificates import Authority
from tests.harness.waiting import await_
from tests.tracing.collector import Collector, attributes_of
from tracing import open_recorder
from tracing.events import Stage, TraceEvent
from tracing.recorder import Drops, QueuedRecorder, SinkAway
from tracing.sinks.otlp import OtlpSink, SpansRefused, open_otlp_sink, url_of
from tracing.spans import CALL, DELIVER, SpanMaker

NOW = 1_795_000_000_000
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ERROR, UNSET = Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET


def event(message_id: str = "m1", stage: Stage = Stage.SETTLED, **fields: Any) -> TraceEvent:
    given: dict[str, Any] = {"at": NOW + 50, "delivery_key": f"key-{message_id}", "state": "SENT"}
    return TraceEvent(**{**given, "stage": stage, "message_id": message_id, **fields})


def called(message_id: str = "m1", **fields: Any) -> TraceEvent:
    given: dict[str, Any] = {
        "lane": "sms.notice",
        "account": "main",
        "worker": "w1",
        "attempt": 1,
        "receiver": "+86138***0001",
        "received_at": NOW,
        "claimed_at": NOW + 10,
        "started_at": NOW + 20,
        "answered_at": NOW + 45,
        "provider_id": "8812",
    }
    return event(message_id, **{**given, **fields})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as one:
        yield one


def sink_to(endpoint: str, **fields: Any) -> OtlpSink:
    telemetry = TelemetrySettings(otlp_endpoint=endpoint, **{"timeout_s": 5.0, **fields})
    return OtlpSink(SpanMaker(telemetry.service_name, telemetry.sample_ratio), telemetry)


def sent(collector: Collector, events: Sequence[TraceEvent], **fields: Any) -> list[Span]:
    sink = sink_to(collector.endpoint, **fields)
    sink.write(events)
    sink.close(1.0)
    return collector.spans


def named(spans: Sequence[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def test_a_delivery_is_a_child_of_the_senders_span_and_its_call_a_child_of_it(
    collector: Collector,
) -> None:
    spans = sent(collector, [called(traceparent=TRACEPARENT)], service_name="shop")
    (deliver,), (call,) = named(spans, DELIVER), named(spans, CALL)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert deliver.parent_span_id.hex() == PARENT
    assert call.parent_span_id == deliver.span_id != call.span_id
    assert (deliver.kind, call.kind) == (Span.SPAN_KIND_CONSUMER, Span.SPAN_KIND_CLIENT)
    ns = [(span.start_time_unix_nano, span.end_time_unix_nano) for span in (deliver, call)]
    assert ns == [(NOW * 10**6, (NOW + 50) * 10**6), ((NOW + 20) * 10**6, (NOW + 45) * 10**6)]
    assert attributes_of(call) == {
        "hongyan.message_id": "m1",
        "hongyan.delivery_key": "key-m1",
        "hongyan.lane": "sms.notice",
        "hongyan.account": "main",
        "hongyan.receiver": "+86138***0001",
        "hongyan.attempt": 1,
        "hongyan.worker": "w1",
        "hongyan.state": "SENT",
        "hongyan.provider_id": "8812",
    }
    assert {span.status.code for span in spans} == {UNSET}
    (request,) = collector.requests
    resource = {a.key: a.value.string_value for a in request.resource_spans[0].resource.attributes}
    assert resource["service.name"] == "shop"
    assert collector.paths == ["/v1/traces"]


def test_each_call_of_one_claim_is_a_span(collector: Collector) -> None:
    """As recovery writes it: no time of reading or claiming."""
    unread: dict[str, Any] = {"received_at": 0, "claimed_at": 0}
    first: dict[str, Any] = {"started_at": NOW + 5, "answered_at": NOW + 15, "account": "spare"}
    spans = sent(
        collector,
        [
            called(stage=Stage.ATTEMPTED, at=NOW + 15, state="", reason="busy", **first, **unread),
            called("m2", **unread),
            called(**unread),
        ],
    )
    assert len(named(spans, DELIVER)) == 2
    (deliver,) = [
        one for one in named(spans, DELIVER) if attributes_of(one)["hongyan.message_id"] == "m1"
    ]
    tried, last = [one for one in named(spans, CALL) if one.parent_span_id == deliver.span_id]
    assert deliver.start_time_unix_nano == tried.start_time_unix_nano == (NOW + 5) * 1_000_000
    assert [attributes_of(one)["hongyan.account"] for one in (tried, last)] == ["spare", "main"]
    assert (tried.status.code, tried.status.message, last.status.code) == (ERROR, "busy", UNSET)


@pytest.mark.parametrize(
    "traceparent",
    [None, "", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-x", "x" * 2_000],
)
def test_without_a_valid_parent_a_message_has_a_trace_of_its_own(
    collector: Collector, traceparent: str | None
) -> None:
    spans = sent(
        collector,
        [
            called(traceparent=traceparent),
            called(delivery_key="other", traceparent=traceparent),
            called("m2", traceparent=traceparent),
        ],
    )
    traces = [span.trace_id for span in named(spans, DELIVER)]
    assert traces[0] == traces[1] != traces[2]
    assert TRACE not in {one.hex() for one in traces}
    assert {span.parent_span_id for span in named(spans, DELIVER)} == {b""}
    assert len({span.span_id for span in spans}) == len(spans) == 6


@pytest.mark.parametrize(
    ("state", "reason", "of_delivery", "of_call"),
    [
        ("SENT", None, UNSET, UNSET),
        ("REJECTED", "bad_number", ERROR, ERROR),
        ("PARKED", "login", ERROR, ERROR),
        ("UNKNOWN", "timeout", ERROR, ERROR),
        ("RETRY", "busy", UNSET, ERROR),
    ],
)
def test_the_state_makes_the_status(
    collector: Collector, state: str, reason: str | None, of_delivery: int, of_call: int
) -> None:
    spans = sent(collector, [called(state=state, reason=reason)])
    codes = {span.name: span.status.code for span in spans}
    assert codes == {DELIVER: of_delivery, CALL: of_call}
    assert {span.status.message for span in spans if span.status.code == ERROR} <= {reason}


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_is_a_span_or_none(collector: Collector, stage: Stage) -> None:
    without = {
        *(Stage.CLAIMED, Stage.ATTEMPTED, Stage.RECEIPT, Stage.RECEIPT_CONTRADICTED),
        *(Stage.RECALLED, Stage.RESOLVED, Stage.DEAD_LETTER, Stage.HANDED_OVER, Stage.REMOVED),
        *(Stage.ACCEPTED, Stage.TAKEN, Stage.FOUND, Stage.RECALL_ASKED),
    }
    spans = sent(collector, [event(stage=stage, received_at=NOW)])
    assert [span.name for span in spans] == ([] if stage in without else [DELIVER])


@pytest.mark.parametrize(("flags", "ratio", "count"), [("01", 0.0, 2), ("00", 1.0, 0)])
def test_the_sender_decides_for_its_own_traces(
    collector: Collector, flags: str, ratio: float, count: int
) -> None:
    one = called(traceparent=f"00-{TRACE}-{PARENT}-{flags}")
    assert len(sent(collector, [one], sample_ratio=ratio)) == count


def test_the_ratio_decides_for_traces_that_begin_here(collector: Collector) -> None:
    events = [event(f"m{number}") for number in range(2_000)]
    chosen = {one.trace_id for one in sent(collector, events, sample_ratio=0.25)}
    assert 400 < len(chosen) < 600


def test_a_batch_that_is_sent_twice_names_the_same_spans(collector: Collector) -> None:
    sink = sink_to(collector.endpoint, timeout_s=0.5)
    collector.answers = [503]
    with pytest.raises(SinkAway, match="503"):
        sink.write([called()])
    sink.write([called()])
    first = {span.span_id for span in collector.spans}
    sink.write([called()])
    sink.close(1.0)
    assert {span.span_id for span in collector.spans} == first
    assert len(collector.spans) == 4


@pytest.mark.parametrize("status", [302, 400, 401, 404])
def test_a_collector_that_refuses_gets_the_batch_once(collector: Collector, status: int) -> None:
    collector.answers = [status]
    with pytest.raises(SpansRefused, match=str(status)):
        sink_to(collector.endpoint).write([called()])
    assert len(collector.paths) == 1


def test_headers_are_sent(collector: Collector) -> None:
    sent(collector, [called()], headers="Authorization=Bearer%20t0ken, x-tenant=shop")
    assert collector.headers[0]["authorization"] == "Bearer t0ken"
    assert collector.headers[0]["x-tenant"] == "shop"


def test_an_added_authority_is_trusted_and_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with Collector(authority.server("127.0.0.1")) as collector:
        assert len(sent(collector, [called()], ca_file=str(authority.file))) == 2
        with pytest.raises(SinkAway, match="CERTIFICATE_VERIFY_FAILED"):
            sink_to(collector.endpoint, timeout_s=0.5).write([called()])


def test_the_endpoint_may_have_a_path() -> None:
    assert url_of("http://h:4318/") == "http://h:4318/v1/traces"
    assert url_of("https://h/otlp") == "https://h/otlp/v1/traces"
    assert url_of("https://h/v1/traces") == "https://h/v1/traces"


class Taking:
    """A sink that takes everything."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def write(self, events: Sequence[TraceEvent]) -> None:
        self.events += events

    def close(self, timeout_s: float, last: bool = False) -> None:
        """Has nothing open."""


def test_a_collector_that_is_away_costs_spans_alone() -> None:
    with socket.socket() as unheard:  # bound, and nobody listens
        unheard.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        settings = Settings(telemetry=TelemetrySettings(otlp_endpoint=endpoint, timeout_s=0.2))
        other = Taking()

        def taking(_drops: Drops) -> Taking:
            return other

        def otlp(drops: Drops) -> Any:
            return open_otlp_sink(settings, drops)

        with capture_logs() as logs:
            recorder = QueuedRecorder({"otlp": otlp, "other": taking}, buffer=1_000)
            slow = 0
            for number in range(3_000):
                began = time.perf_counter()
                recorder.record([called(f"m{number}")])
                slow += time.perf_counter() - began > 0.1
                if number % 500 == 499:
                    await_(lambda upto=number: len(other.events) > upto, what="the other sink")  # type: ignore[misc]
            await_(lambda: failures(logs), what="the outage in the log")
            recorder.close(1.0)
    assert len(other.events) == 3_000
    assert slow < 10, "each of the 2,000 behind a full buffer waited"  # a busy machine delays some
    lost = dict(recorder.dropped())
    in_hand = lost.pop(("otlp", "unfinished"), 0)  # where the time was over during a request
    assert lost == {("otlp", "full"): 2_000, ("otlp", "closing"): 1_000 - in_hand}
    assert len(failures(logs)) == 1


def failures(logs: Sequence[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "trace_sink_failed"]


def test_a_refused_batch_is_counted(collector: Collector) -> None:
    collector.answers = [401]
    telemetry = TelemetrySettings(otlp_endpoint=collector.endpoint)
    trace = TraceSettings(kafka=False, database=False)
    recorder = open_recorder(Settings(trace=trace, telemetry=telemetry), spans=True)
    recorder.record([called()])
    await_(lambda: recorder.dropped() == {("otlp", "refused"): 1}, what="the count")
    recorder.record([called("m2")])
    recorder.close(5.0)
    assert [attributes_of(one)["hongyan.message_id"] for one in collector.spans] == ["m2", "m2"]


OPENING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
if EXTRA_IS_MISSING:
    sys.meta_path.insert(0, Missing())
import hongyan.cli, dispatcher.process, recovery.process
from hongyan.usage.extras import sentence_for
from backends.settings import Settings, TelemetrySettings, TraceSettings
from tracing import open_recorder
OURS = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.proto", "tracing.spans")
def loaded():
    return sorted(name for name in sys.modules if name.startswith(OURS))
trace = TraceSettings(kafka=False, database=False)
telemetry = TelemetrySettings(otlp_endpoint="http://127.0.0.1:9")
open_recorder(Settings(trace=trace), spans=True).close(0)
open_recorder(Settings(trace=trace, telemetry=telemetry)).close(0)
assert not loaded(), loaded()
try:
    open_recorder(Settings(trace=trace, telemetry=telemetry), spans=True).close(0)
except ModuleNotFoundError as exc:
    print(sentence_for(exc))
print(len(loaded()) > 3)
"""


@pytest.mark.parametrize(
    ("missing", "printed"),
    [
        (False, "True\n"),
        (
            True,
            (
                "this command needs opentelemetry, which is not installed; to get it, type:"
                " pip install 'hongyan[otel]'\nFalse\n"
            ),
        ),
    ],
)
def test_without_an_endpoint_nothing_of_opentelemetry_is_needed(
    missing: bool, printed: str
) -> None:
    """redis-py itself loads the SDK's metrics where they are installed."""
    program = OPENING.replace("EXTRA_IS_MISSING", str(missing))
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == printed
