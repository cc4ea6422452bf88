"""What claims make of deliveries that are known already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.metrics import Metrics
from dispatcher.pipeline.claims import LedgerClaims
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Work
from hongyan.commands.trace import _details
from idempotency.payload_cipher import body_digest
from sending.runtime.clock import Clock
from tests.dispatcher.pipeline.test_gates import Bench
from tests.dispatcher.pipeline.test_telemetry import Kept
from tracing.events import Stage
from tracing.spans import SpanMaker
from tracing.timeline import moments


def screened(work: Work, marks: Mapping[str, bytes]) -> tuple[list[Work], list[Work]]:
    """Looks a delivery up in Redis, which has these marks."""

    def lookup(keys: Sequence[str]) -> list[bytes | None]:
        return [marks.get(key) for key in keys]

    any_: Any = None
    prefilter: Any = SimpleNamespace(lookup=lookup)
    gate = LedgerClaims(
        any_, prefilter, owner="w", outage=any_, clock=Clock(), count=Metrics(), term=lambda: 1
    )
    return gate.screen([work])


@pytest.mark.parametrize(
    ("body", "stage", "reason"),
    [(b"{}", Stage.DUPLICATE, "duplicate_prefilter"), (b"{ }", Stage.CONFLICT, "conflict")],
)
def test_a_delivery_that_redis_knows_is_reported_without_a_state(
    body: bytes, stage: Stage, reason: str
) -> None:
    """It may have been rejected: a mark says that it is settled, and not how."""
    work, kept, metrics = Bench().work(), Kept(), Metrics()
    worth, ended = screened(work, {work.delivery.key: body_digest(body)})
    assert (worth, ended) == ([], [work])
    WorkerTelemetry(kept, metrics, clock=Clock(), worker="w").ended(ended)
    (event,) = kept.events
    assert (event.stage, event.state, event.reason) == (stage, "", reason)
    (moment,) = (one for one in moments(kept.events) if one.what == stage)
    assert _details(moment, "w", "v1").plain == reason
    (span,) = SpanMaker("worker", 1.0).spans_of(kept.events)
    assert span.attributes is not None
    assert "hongyan.state" not in span.attributes
    labels = {"lane": work.delivery.lane, "by": "redis"}
    assert metrics.registry.get_sample_value("hongyan_duplicates_total", labels) == 1
