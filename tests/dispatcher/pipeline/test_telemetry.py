"""What the trace says of a delivery that was called several times under one claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dispatcher.kafka.offsets import Offsets
from dispatcher.metrics import Metrics
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Assignment, KafkaRecord, Work
from idempotency.ledger import Settlement
from message.delivery import deliveries_of
from message.outcomes import Accepted
from message.states import Event
from sending.attempts import PastCall
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, notification
from tracing.events import TraceEvent


class Kept:
    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events

    def dropped(self) -> Mapping[tuple[str, str], int]:
        return {}

    def close(self, timeout_s: float = 5.0) -> None:
        pass


def called_twice() -> Work:
    one = notification(0)
    record = KafkaRecord(Assignment(TOPIC, 0, LANE, Offsets()), 0, one, b"{}", NOW_MS, None)
    (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS + 1_000)
    delivery.attempt, delivery.account = 2, "b"
    tried = PastCall(
        account="a",
        attempt=1,
        code="connect",
        detail="nobody listens there",
        started_at=NOW_MS + 1,
        answered_at=NOW_MS + 2,
    )
    outcome = Accepted("p-1")
    return Work(delivery, record, end=outcome, tries=(tried,), answered_at=NOW_MS + 9)


@pytest.mark.parametrize("kept_by_a_ledger", [True, False])
def test_each_call_is_told_with_its_account_and_what_it_was_answered(
    kept_by_a_ledger: bool,
) -> None:
    kept, work = Kept(), called_twice()
    report = WorkerTelemetry(kept, Metrics(), clock=Clock(), worker="w")
    settlement = Settlement(work.delivery, Event.ACCEPTED, provider_id="p-1")
    if kept_by_a_ledger:
        report.settled([(work, settlement)], [True], 0.1)
    else:
        report.best_effort(work, settlement)
    told = [(e.stage, e.attempt, e.account, e.reason, e.detail) for e in kept.events]
    assert told == [
        ("attempted", 1, "a", "connect", "nobody listens there"),
        ("settled", 2, "b", None, None),
    ]
    assert kept.events[0].at == NOW_MS + 2
