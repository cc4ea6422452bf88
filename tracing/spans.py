"""Trace events as OpenTelemetry spans: `hongyan.deliver` for each claim, `hongyan.call` for each call.

Ids are derived from the events, so that a batch that is sent twice names the same spans. Importing this
loads the OpenTelemetry SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from message.states import State
from tracing.events import Stage, TraceEvent
from tracing.sinks.span_ids import SPAN_BYTES, TRACE_BYTES, number_of

DELIVER: Final = "hongyan.deliver"
CALL: Final = "hongyan.call"
_ENDS: Final = frozenset(
    {
        *(Stage.SETTLED, Stage.EXPIRED, Stage.FENCED, Stage.OWNER_DEAD),
        # Ended at the claim, without a call.
        *(Stage.DROPPED, Stage.PARKED, Stage.HELD, Stage.BEHIND, Stage.DUPLICATE, Stage.CONFLICT),
    }
)
"""Stages that end a claim. The others have no span of their own."""
_FAULTS: Final = frozenset({State.REJECTED.value, State.PARKED.value, State.UNKNOWN.value})
_ATTRIBUTES: Final = (
    *("message_id", "delivery_key", "biz_id", "lane", "receiver", "account", "attempt", "worker"),
    *("state", "reason", "provider_id", "call_end", "origin", "policy_version"),
)
_NS_PER_MS: Final = 1_000_000


class SpanMaker(SpanProcessor):
    """Turns batches of events into ended spans. One thread uses it."""

    def __init__(self, service_name: str, sample_ratio: float) -> None:
        self._ids = _GivenIds()
        self._ended: list[ReadableSpan] = []
        of_us = {"service.name": service_name, "service.version": version("hongyan")}
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            resource=Resource.create(of_us),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        provider.add_span_processor(self)
        self._tracer = provider.get_tracer("hongyan")
        self._propagator = TraceContextTextMapPropagator()

    def spans_of(self, events: Sequence[TraceEvent]) -> list[ReadableSpan]:
        """Returns the spans that are sampled. Events of one claim must be in one batch, its end last."""
        calls: dict[str, list[TraceEvent]] = {}
        for event in events:
            if event.stage is Stage.ATTEMPTED:
                calls.setdefault(event.delivery_key, []).append(event)
            elif event.stage in _ENDS and event.message_id:
                self._deliver(event, calls.pop(event.delivery_key, []))
        spans, self._ended = self._ended, []
        return spans

    def on_end(self, span: ReadableSpan) -> None:
        """Keeps an ended span for `spans_of`."""
        self._ended.append(span)

    def _deliver(self, end: TraceEvent, calls: list[TraceEvent]) -> None:
        """Makes the span of one claim, and those of its calls."""
        if end.started_at and end.answered_at:
            calls = [*calls, end]
        starts = (end.received_at or end.claimed_at, *(call.started_at for call in calls))
        start = min((one for one in starts if one), default=end.at)
        identity = f"{end.delivery_key}/{end.worker}/{end.stage}/{end.attempt}/{end.at}"
        self._ids.trace_id = number_of(end.message_id, TRACE_BYTES)
        span = self._span(
            end, (DELIVER, SpanKind.CONSUMER, identity), self._parent_of(end), (start, end.at)
        )
        for call in calls:
            named = (CALL, SpanKind.CLIENT, f"{identity}/{call.account}/{call.started_at}")
            self._span(call, named, span, (call.started_at, call.answered_at))

    def _parent_of(self, event: TraceEvent) -> Context:
        """Returns the sender's context; an empty one if it gave none, or an invalid one."""
        carrier = {"traceparent": event.traceparent} if event.traceparent else {}
        return self._propagator.extract(carrier, Context())

    def _span(
        self,
        event: TraceEvent,
        named: tuple[str, SpanKind, str],
        parent: Context,
        times: tuple[int, int],
    ) -> Context:
        """Makes one span of `named` (name, kind, identity). Returns the context of its children."""
        name, kind, identity = named
        start, end = times
        self._ids.span_id = number_of(identity, SPAN_BYTES)
        values = ((key, getattr(event, key)) for key in _ATTRIBUTES)
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=kind,
            attributes={f"hongyan.{key}": value for key, value in values if value},
            start_time=start * _NS_PER_MS,
        )
        if _failed(event, name):
            span.set_status(Status(StatusCode.ERROR, event.detail or event.reason or event.state))
        span.end(max(start, end) * _NS_PER_MS)
        return set_span_in_context(span, Context())


def _failed(event: TraceEvent, name: str) -> bool:
    """Returns whether the span is an error: a call that was not accepted is one in any state."""
    if event.state in _FAULTS:
        return True
    return name == CALL and (event.stage is Stage.ATTEMPTED or event.state == State.RETRY.value)


class _GivenIds(IdGenerator):
    """Gives out the ids that `SpanMaker` sets before each span."""

    trace_id = 1
    span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id
