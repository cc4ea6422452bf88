"""Metrics, trace events and alerts of recovery."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from backends.metrics import recovery_families as of_recovery
from backends.metrics.families import RECOVERY
from backends.metrics.instruments import counter_of
from backends.metrics.process_info import show_process
from backends.metrics.readings import show_readings
from idempotency.claims.rows import OWNER_DEAD
from idempotency.ledger import Settlement
from idempotency.recovery.contract import (
    DueBacklog,
    Ended,
    Transition,
    UnknownDelivery,
    by_operator,
)
from idempotency.sums.counter import FENCED, CallMoments, MinuteSums, Series
from message.delivery import Delivery
from message.outcomes import Accepted, end_without_answer, provider_code
from message.reasons import code_of
from message.states import Event, State, after
from recovery.alerts import Alerts
from recovery.backlog_gauges import BacklogGauges
from recovery.retry.pool import RetryWork
from sending.call_times import CallTimes
from sending.endings import outcome_of
from sending.runtime.clock import Clock
from tracing.events import Recorder, Stage, TraceEvent, owner_death
from tracing.masks import HashReceiver, mask, no_hash, template_of

log = structlog.get_logger(__name__)
_STAGE_OF_END = {State.EXPIRED: Stage.EXPIRED, State.DROPPED: Stage.DROPPED}


class RecoveryMetrics:
    """One recovery's metrics. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, RECOVERY)
        self.backlog = BacklogGauges(monotonic)
        show_readings(self.registry, self.backlog.readings)
        counter = partial(counter_of, registry=self.registry)
        self.resent = counter(of_recovery.RESENT)
        self.resolved = counter(of_recovery.RESOLVED)
        self.asked_again = counter(of_recovery.ASKED_AGAIN)
        self.doubles = counter(of_recovery.POSSIBLE_DUPLICATES)
        self.ended = counter(of_recovery.ENDED)
        self.call_times = CallTimes(of_recovery.CALL_SECONDS, self.registry)
        self.woken = counter(of_recovery.WOKEN)
        self.sums = MinuteSums()


class RecoveryTelemetry:
    """Thread-safe; never raises."""

    def __init__(
        self,
        recorder: Recorder,
        metrics: RecoveryMetrics,
        alerts: Alerts,
        *,
        clock: Clock,
        name: str,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        """`hash_receiver` is `tracing.masks.hasher`'s."""
        self._recorder = recorder
        self._metrics = metrics
        self._alerts = alerts
        self._clock = clock
        self._name = name
        self._hash_receiver = hash_receiver

    def ended(self, rows: Sequence[Ended]) -> None:
        """Reports due rows whose time, attempts or payload are over."""
        for row in rows:
            self._metrics.ended.labels(row.lane, row.state.value, row.reason).inc()
            if row.state is State.PARKED:
                self._alerts.parked(row.lane, row.reason, row.key)
        now = self._clock.now_ms()
        self._metrics.sums.add(now, [(row.lane, row.account, row.state.value) for row in rows])
        self._recorder.record([event for row in rows for event in self._ended_events(row, now)])

    def taken(self, resends: Sequence[RetryWork]) -> None:
        """Reports deliveries whose next call is on record."""
        events = []
        for resend in resends:
            event = self._event(resend.delivery, Stage.TAKEN, State.IN_FLIGHT.value)
            event.reason = resend.taken.reason or None
            events.append(event)
        self._recorder.record(events)

    def resent(
        self, pairs: Sequence[tuple[RetryWork, Settlement]], written: Sequence[bool]
    ) -> None:
        """Reports outcomes that are in the ledger, or were fenced."""
        events = []
        sent: list[bool] = []
        ended: list[Series] = []
        for (resend, settlement), ours in zip(pairs, written, strict=True):
            state = after(State.IN_FLIGHT, settlement.event) if ours else None
            lane, account = settlement.delivery.lane, settlement.delivery.account
            self._metrics.resent.labels(lane, account, state.value if state else "fenced").inc()
            sent.append(state is State.SENT)
            ended.append((lane, account, state.value if state else FENCED))
            if state is State.PARKED:
                self._alerts.parked(lane, settlement.reason or "", settlement.delivery.key)
            if resend.doubted and resend.answered_at and by_operator(resend.taken.reason):
                self._metrics.doubles.labels(lane).inc()
            event = self._resent_event(resend, settlement, state)
            events += [t.as_event(replace(event, provider_id=None)) for t in resend.tries]
            events.append(event)
        self._metrics.call_times.count([resend for resend, _ in pairs], sent)
        moments = [_moments(resend) for resend, _ in pairs]
        self._metrics.sums.add(self._clock.now_ms(), ended, moments)
        self._recorder.record(events)

    def unsendable(self, settlement: Settlement, *, written: bool) -> None:
        """Reports a delivery without a call: its account or template is gone. If its end was not `written`,
        it is another process's by now."""
        delivery, state = settlement.delivery, after(State.IN_FLIGHT, settlement.event)
        reason = settlement.reason or ""
        if not written:
            event = self._event(delivery, Stage.FENCED, "")
            event.reason = reason
            self._recorder.record([event])
            return
        self._metrics.ended.labels(delivery.lane, state.value, code_of(reason)).inc()
        self._count_one(delivery, state)
        if state is State.PARKED:
            named = delivery.notification.template
            self._alerts.parked(delivery.lane, reason, delivery.key, named.id if named else "")
        event = self._event(delivery, Stage.SETTLED, state.value)
        event.reason = reason
        self._recorder.record([event])

    def resolved(self, doubt: UnknownDelivery, move: Transition) -> None:
        """Reports the end of a doubt, with the move's reason."""
        lane, state = doubt.delivery.lane, after(State.UNKNOWN, move.event)
        self._metrics.resolved.labels(lane, move.event.name.lower()).inc()
        self._count_one(doubt.delivery, state)
        if move.event is Event.RESEND_UNPROVEN:
            self._metrics.doubles.labels(lane).inc()
        if state is State.PARKED:
            self._alerts.parked(lane, move.reason or "", move.key)
        event = self._event(doubt.delivery, Stage.RESOLVED, state.value)
        event.reason, event.detail = move.reason, move.event.value
        event.provider_id = move.provider_id or None
        events = [event]
        if doubt.reason == OWNER_DEAD:  # the next attempt erases its facts from the row
            owner, since, called_at = doubt.owner, doubt.since, doubt.last_call
            death = owner_death(event, owner=owner, since=since, claimed_at=called_at)
            events.insert(0, death)
        self._recorder.record(events)

    def asked_again(self, doubt: UnknownDelivery) -> None:
        """Counts a doubt that has no answer yet."""
        self._metrics.asked_again.labels(doubt.delivery.lane).inc()

    def woken(self, lane: str, rows: int) -> None:
        """Counts rows that no settlement had woken: normally none."""
        self._metrics.woken.labels(lane).inc(rows)
        if rows:
            log.warning("line_woken_late", lane=lane, rows=rows)

    def backlog(self, backlog: Sequence[DueBacklog], valid_s: float) -> None:
        """Shows the backlog for `valid_s` seconds."""
        self._metrics.backlog.show(backlog, valid_s)

    def behind(self, lines: Mapping[str, int], valid_s: float) -> None:
        """Shows, per lane, the number of ordering keys whose head holds others, for `valid_s` seconds."""
        self._metrics.backlog.show_behind(lines, valid_s)

    def _count_one(self, delivery: Delivery, state: State) -> None:
        ended = (delivery.lane, delivery.account, state.value)
        self._metrics.sums.add(self._clock.now_ms(), [ended])

    def _resent_event(
        self, resend: RetryWork, settlement: Settlement, state: State | None
    ) -> TraceEvent:
        stage = Stage.EXPIRED if settlement.event is Event.TTL else Stage.SETTLED
        event = self._event(
            settlement.delivery, stage if state else Stage.FENCED, state.value if state else ""
        )
        event.reason = settlement.reason
        event.provider_id = settlement.provider_id
        event.started_at, event.answered_at = resend.started_at, resend.answered_at
        outcome = outcome_of(resend.end)
        if outcome is not None and not isinstance(outcome, Accepted):
            event.detail, event.answer = outcome.detail or None, outcome.answer
            if resend.answered_at:
                event.call_end, event.code = end_without_answer(outcome), provider_code(outcome)
        return event

    def _event(self, delivery: Delivery, stage: Stage, state: str) -> TraceEvent:
        notification = delivery.notification
        return TraceEvent(
            at=self._clock.now_ms(),
            stage=stage,
            message_id=notification.id,
            delivery_key=delivery.key,
            biz_id=notification.biz_id,
            lane=delivery.lane,
            receiver=mask(notification.channel, delivery.receiver),
            receiver_hash=delivery.receiver_hash
            or self._hash_receiver(notification.channel, delivery.receiver),
            template=template_of(notification),
            worker=self._name,
            attempt=delivery.attempt,
            state=state,
            account=delivery.account,
            origin=str(delivery.origin) if delivery.origin else None,
            policy_version=delivery.policy_version,
            created_at=notification.created_at,
        )

    def _ended_events(self, row: Ended, now: int) -> list[TraceEvent]:
        event = TraceEvent(
            at=now,
            stage=_STAGE_OF_END.get(row.state, Stage.SETTLED),
            message_id=row.message_id,
            delivery_key=row.key,
            biz_id=row.biz_id,
            lane=row.lane,
            worker=self._name,
            attempt=row.attempt,
            state=row.state.value,
            reason=row.reason,
            account=row.account,
            policy_version=row.policy_version,
            created_at=row.created_at,
            **row.facts._asdict(),
        )
        return [owner_death(event, **row.death._asdict()), event] if row.death else [event]


def _moments(resend: RetryWork) -> CallMoments:
    created_at = resend.delivery.notification.created_at
    return created_at, 0, 0, resend.started_at, resend.answered_at
