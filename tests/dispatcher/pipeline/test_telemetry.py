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
from message.envelope import Template
from message.outcomes import Accepted, NotSent, Outcome, Rejected, Unknown
from message.states import Event
from sending.attempts import PastCall
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, notification
from tracing.events import TraceEvent
from tracing.masks import hasher


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
        call_end="not_started",
        answer="<html>",
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
    assert [e.answer for e in kept.events] == ["<html>", ""]


@pytest.mark.parametrize(
    ("outcome", "event", "reason", "code"),
    [
        (Accepted("p-1"), Event.ACCEPTED, None, ""),
        (Rejected("1002", answer="no"), Event.REJECTED, "1002", "1002"),
        (NotSent("isv.LIMIT"), Event.BUDGET_SPENT, "attempts_spent:isv.LIMIT", "isv.LIMIT"),
        (NotSent("connect"), Event.NOT_SENT, "connect", ""),
        (Unknown("timeout"), Event.UNKNOWN, "timeout", ""),
    ],
)
def test_the_providers_code_stands_apart_from_our_reason(
    outcome: Outcome, event: Event, reason: str | None, code: str
) -> None:
    kept, work = Kept(), called_twice()
    work.end = outcome  # type: ignore[assignment]
    report = WorkerTelemetry(kept, Metrics(), clock=Clock(), worker="w")
    report.settled([(work, Settlement(work.delivery, event, reason))], [True], 0.1)
    assert [(e.reason, e.code) for e in kept.events] == [("connect", ""), (reason, code)]
    assert kept.events[-1].answer == getattr(outcome, "answer", "")


def test_an_event_has_the_fields_by_which_it_is_counted() -> None:
    kept, work = Kept(), called_twice()
    named = notification(0, template=Template(id="T_1", params={}), content=None)
    work.delivery.notification, work.delivery.policy_version = named, "v3:x"
    calls: list[str] = []

    def counted(channel: str, receiver: str) -> str:
        calls.append(receiver)
        return hasher("k" * 32)(channel, receiver)

    report = WorkerTelemetry(kept, Metrics(), clock=Clock(), worker="w", hash_receiver=counted)
    settled = Settlement(work.delivery, Event.ACCEPTED, provider_id="p-1")
    report.settled([(work, settled)], [True], 0.1)
    assert len(calls) == 1, "hashed once, however many events there are"
    tried, last = kept.events
    for event in (tried, last):
        assert (event.template, event.created_at, event.policy_version) == ("T_1", NOW_MS, "v3:x")
        assert event.receiver_hash == hasher("k" * 32)("webhook", "someone")
    assert (tried.provider_id, tried.claimed_at) == (None, 0)
