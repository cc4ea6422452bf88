"""Metrics, trace events and log lines of found deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from backends.metrics import recovery_families as of_recovery
from backends.metrics.instruments import counter_of
from idempotency.ledger import Claim, Claimed
from idempotency.lost.findings import Decision, Finding, FindingStatus
from message.reasons import LOST
from message.states import State
from sending.runtime.clock import Clock
from tracing.events import Recorder, Stage, TraceEvent
from tracing.masks import HashReceiver, mask, no_hash, template_of

log = structlog.get_logger(__name__)
Entered = tuple[Finding, Claim, Claimed]
"""A finding, and the claim that the ledger took."""


class LostTelemetry:
    """Never raises."""

    def __init__(
        self,
        recorder: Recorder,
        registry: CollectorRegistry,
        *,
        clock: Clock,
        name: str,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        self._recorder = recorder
        self._decided = partial(counter_of, registry=registry)(of_recovery.LOST_DECIDED)
        self._clock = clock
        self._name = name
        self._hash_receiver = hash_receiver

    def decided(self, findings: Sequence[Finding], decisions: Sequence[Decision]) -> None:
        """Counts and logs decisions; `findings` has at least theirs."""
        by_id = {finding.id: finding for finding in findings}
        for one in decisions:
            finding = by_id[one.id]
            self._decided.labels(finding.lane, finding.cause, one.status.value).inc()
            write = log.info if one.status is FindingStatus.CONTRADICTED else log.warning
            write(
                "lost_decided",
                finding=one.id,
                delivery=finding.subject,
                lane=finding.lane,
                found_as=finding.cause,
                status=one.status.value,
                why=one.why,
            )

    def entered(self, entered: Sequence[Entered]) -> None:
        """Traces rows that entered the ledger."""
        now = self._clock.now_ms()
        self._recorder.record([self._event(*one, now) for one in entered])

    def _event(self, finding: Finding, claim: Claim, answer: Claimed, now: int) -> TraceEvent:
        delivery, notification = claim.delivery, claim.delivery.notification
        return TraceEvent(
            at=now,
            stage=Stage.FOUND,
            message_id=notification.id,
            delivery_key=delivery.key,
            biz_id=notification.biz_id,
            lane=delivery.lane,
            receiver=mask(notification.channel, delivery.receiver),
            receiver_hash=self._hash_receiver(notification.channel, delivery.receiver),
            template=template_of(notification),
            worker=self._name,
            state=answer.state.value,
            reason=claim.reason if answer.state is not State.DROPPED else "recalled",
            detail=f"{LOST}: {finding.cause}",
            origin=str(delivery.origin) if delivery.origin else None,
            policy_version=delivery.policy_version,
            created_at=notification.created_at,
        )
