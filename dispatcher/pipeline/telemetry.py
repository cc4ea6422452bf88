"""Metrics and trace events of the stages, a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from dispatcher.metrics import Metrics
from dispatcher.pipeline.work import AlreadyKnown, EndedAtClaim, Work
from idempotency.ledger import Settlement
from idempotency.sums.counter import FENCED, CallMoments, Series
from message.outcomes import Accepted, end_without_answer, provider_code
from message.reasons import BY_CODE, is_final
from message.states import Event, State, after
from policy.schema import TraceLevel
from sending.alerts.notifier import Alert
from sending.alerts.rules import dropped, parked
from sending.endings import outcome_of
from sending.runtime.clock import Clock
from tracing.events import Recorder, Stage, TraceEvent
from tracing.masks import HashReceiver, mask, no_hash, template_of

log = structlog.get_logger(__name__)
KEPT: Final = "the ledger keeps it: mend the cause, then `hongyan resend`"
LOST: Final = "best_effort lanes keep nothing: mend the cause, then send it under a new id"
_STAGE_OF_EVENT = {Event.TTL: Stage.EXPIRED}


class WorkerTelemetry:
    """`Intake` calls `claimed`, `Settle` `best_effort`, `CompletionStage` the rest, each in its thread."""

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        *,
        clock: Clock,
        worker: str,
        alert: Callable[[Alert, int], None] = lambda _alert, _count: None,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        """`alert` is `AlertNotifier.raise_`, `hash_receiver` `tracing.masks.hasher`'s."""
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._worker = worker
        self._alert = alert
        self._hash_receiver = hash_receiver

    def claimed(self, works: Sequence[Work]) -> None:
        """Notes the time of the claim on deliveries that go to their lanes."""
        now = self._clock.now_ms()
        for work in works:
            work.claimed_at = now

    def settled(
        self, pairs: Sequence[tuple[Work, Settlement]], written: Sequence[bool], seconds: float
    ) -> None:
        """Reports outcomes that are in the ledger, or were fenced."""
        self._metrics.settle_batch.observe(len(pairs))
        self._metrics.settle_seconds.observe(seconds)
        now = self._clock.now_ms()
        ended: list[Series] = []
        moments: list[CallMoments] = []
        sent: list[bool] = []
        events = []
        alerts: list[Alert] = []
        for (work, settlement), ours in zip(pairs, written, strict=True):
            state = after(State.IN_FLIGHT, settlement.event) if ours else None
            delivery = work.delivery
            ended.append((delivery.lane, delivery.account, state._value_ if state else FENCED))
            moments.append(moments_of(work))
            sent.append(state is State.SENT)
            if state is State.PARKED:
                alerts.append(parked(delivery.lane, settlement.reason or ""))
            if _traced(work, smooth=state is State.SENT and not work.tries):
                event = self._settled_event(work, settlement, state, now)
                if work.tries:
                    events += _tried_events(work, event)
                events.append(event)
        self._metrics.call_times.count([work for work, _ in pairs], sent)
        self._count(ended)
        self._metrics.sums.add(now, ended, moments)
        self._raise(alerts)
        self._recorder.record(events)

    def best_effort(self, work: Work, settlement: Settlement) -> None:
        """Reports an outcome that no ledger keeps."""
        state = after(State.IN_FLIGHT, settlement.event)
        series = (work.delivery.lane, work.delivery.account, state.value)
        self._metrics.settled.labels(*series).inc()
        self._metrics.call_times.count([work], [state is State.SENT])
        self._metrics.sums.add_one(self._clock.now_ms(), series, moments_of(work))
        if _traced(work, smooth=state is State.SENT and not work.tries):
            event = self._settled_event(work, settlement, state, self._clock.now_ms())
            self._recorder.record([*_tried_events(work, event), event])

    def ended(self, works: Sequence[Work]) -> None:
        """Reports deliveries that ended at intake: duplicates, conflicts, expired, behind, parked."""
        if not works:
            return
        now = self._clock.now_ms()
        ended: list[Series] = []
        known: Counter[tuple[str, str]] = Counter()
        events = []
        faulty: list[tuple[Work, EndedAtClaim]] = []
        for work in works:
            lane, end = work.delivery.lane, work.end
            assert isinstance(end, EndedAtClaim | AlreadyKnown)
            stage = stage_of(end)
            fault = isinstance(end, EndedAtClaim) and can_be_mended(end)
            if _traced(work, smooth=stage is Stage.DUPLICATE):
                state = end.state.value if end.state is not None else ""
                events.append(self._event(work, stage, now, state, end.reason))
                if isinstance(end, EndedAtClaim):
                    events[-1].account = work.delivery.account
                if fault:
                    events[-1].detail = KEPT if end.state is State.PARKED else LOST
            if isinstance(end, EndedAtClaim):
                ended.append((lane, work.delivery.account, end.state.value))
                if fault:
                    faulty.append((work, end))
            else:
                known[lane, "redis" if end.is_of_redis else "ledger"] += 1
        self._count(ended)
        self._metrics.sums.add(now, ended)
        for (lane, by), count in known.items():
            self._metrics.duplicates.labels(lane, by).inc(count)
        if faulty:
            self._report_faults(faulty)
        self._recorder.record(events)

    def _count(self, ended: Sequence[Series]) -> None:
        """Counts ended deliveries, each by lane, account and outcome."""
        for (lane, account, outcome), count in Counter(ended).items():
            self._metrics.settled.labels(lane, account, outcome or "fenced").inc(count)

    def _report_faults(self, faulty: Sequence[tuple[Work, EndedAtClaim]]) -> None:
        """Raises the alerts of one batch and writes one line about it."""
        alerts = [_fault_alert(work, end) for work, end in faulty]
        self._raise(alerts)
        first, (work, end) = alerts[0], faulty[0]
        log.warning(
            "deliveries_stopped",
            count=len(faulty),
            state=end.state.value,
            lane=work.delivery.lane,
            about=first.about,
            what=first.text,
        )

    def _raise(self, alerts: Sequence[Alert]) -> None:
        """Raises equal alerts as one, with their count."""
        latest = {alert.subject: alert for alert in alerts}
        counts = Counter(alert.subject for alert in alerts)
        for subject, alert in latest.items():
            self._alert(alert, counts[subject])

    def _settled_event(
        self, work: Work, settlement: Settlement, state: State | None, now: int
    ) -> TraceEvent:
        stage = _STAGE_OF_EVENT.get(settlement.event, Stage.SETTLED)
        if state is None:
            stage = Stage.FENCED
        event = self._event(work, stage, now, state._value_ if state else "", settlement.reason)
        event.account = work.delivery.account
        event.provider_id = settlement.provider_id
        event.claimed_at = work.claimed_at
        event.started_at, event.answered_at = work.started_at, work.answered_at
        outcome = outcome_of(work.end)
        if outcome is not None and not isinstance(outcome, Accepted):
            event.detail, event.answer = outcome.detail or None, outcome.answer
            if work.answered_at:
                event.call_end, event.code = end_without_answer(outcome), provider_code(outcome)
        return event

    def _event(
        self, work: Work, stage: Stage, now: int, state: str, reason: str | None
    ) -> TraceEvent:
        delivery, record = work.delivery, work.record
        notification = delivery.notification
        return TraceEvent(
            at=now,
            stage=stage,
            message_id=notification.id,
            delivery_key=delivery.key,
            biz_id=notification.biz_id,
            lane=delivery.lane,
            receiver=mask(notification.channel, delivery.receiver),
            receiver_hash=delivery.receiver_hash
            or self._hash_receiver(notification.channel, delivery.receiver),
            template=template_of(notification),
            worker=self._worker,
            attempt=delivery.attempt,
            state=state,
            reason=reason,
            origin=str(delivery.origin) if delivery.origin else None,
            policy_version=delivery.policy_version,
            traceparent=record.traceparent,
            created_at=notification.created_at,
            received_at=record.received_at,
        )


def _tried_events(work: Work, last: TraceEvent) -> list[TraceEvent]:
    """Returns an event for each call before the last, whose event is `last`."""
    return [tried.as_event(replace(last, provider_id=None, claimed_at=0)) for tried in work.tries]


def moments_of(work: Work) -> CallMoments:
    """Returns the times of a delivery's way, for the sums."""
    received_at, created_at = work.record.received_at, work.delivery.notification.created_at
    return created_at, received_at, work.claimed_at, work.started_at, work.answered_at


def can_be_mended(end: EndedAtClaim) -> bool:
    """Returns whether a person can mend the cause of the end. A `best_effort` delivery is DROPPED by it."""
    return end.state is State.PARKED or (end.state is State.DROPPED and not is_final(end.reason))


def _fault_alert(work: Work, end: EndedAtClaim) -> Alert:
    named = work.delivery.notification.template
    kind = parked if end.state is State.PARKED else dropped
    return kind(work.delivery.lane, end.reason, named.id if named else "")


def stage_of(end: EndedAtClaim | AlreadyKnown) -> Stage:
    """Returns the trace's stage of a delivery that ended at intake."""
    if isinstance(end, EndedAtClaim) and end.state is State.PARKED:
        return Stage.PARKED
    if isinstance(end, EndedAtClaim) and end.state is State.DROPPED:
        return Stage.DROPPED
    if (known := BY_CODE.get(end.reason)) is not None:
        return Stage(known.end)
    return Stage.HELD if isinstance(end, EndedAtClaim) else Stage.DUPLICATE


def _traced(work: Work, *, smooth: bool) -> bool:
    """Returns whether the lane's policy wants it in the trace; `smooth`: it went without trouble."""
    level = work.terms.policy.trace if work.terms is not None else TraceLevel.ALL
    return level is TraceLevel.ALL or (level is TraceLevel.TROUBLE and not smooth)
