"""Builds the job that runs resend jobs, and a person's actions on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from backends.settings import ResendSettings, Settings
from idempotency.resend_jobs.contract import JobLimits
from idempotency.resend_jobs.store import AlsoNoted, nothing_more
from idempotency.sql_ledger import SqlLedger
from policy.schema import Policy
from recovery.operator_actions import WHO
from recovery.resend.copies import CopyProducer
from recovery.resend_jobs.actions import ResendJobActions
from recovery.resend_jobs.handover import HandoverStores, ItemHandover
from recovery.resend_jobs.runner import ResendJobRunner
from recovery.resend_jobs.telemetry import JobTelemetry
from sending.accepted_trace import AcceptedTrace
from sending.runtime.clock import Clock
from tracing.events import Recorder
from tracing.masks import hasher


class JobSurroundings(NamedTuple):
    """Parts of the recovery that the jobs share."""

    settings: Settings
    policy: Policy
    ledger: SqlLedger
    recorder: Recorder
    registry: CollectorRegistry
    clock: Clock


class ResendJobParts(NamedTuple):
    """The runner, and the part of it that follows the policy."""

    runner: ResendJobRunner
    handover: ItemHandover


def open_resend_jobs(
    of: JobSurroundings, *, hold: Callable[[str, int], bool], stopping: Callable[[], bool]
) -> ResendJobParts:
    """Returns the job; it connects to Kafka at the first copy."""
    ledger, items, report = of.ledger, of.ledger.job_items(), JobTelemetry(of.registry)
    accepted = AcceptedTrace(of.recorder, WHO, hasher(of.settings.outcomes.hash_key))
    stores = HandoverStores(
        rows=ledger.recovering(),
        items=items,
        picks=ledger.picks(),
        payloads=ledger.queries(),
        now_ms=ledger.now_ms,
    )
    copies = CopyProducer(of.settings.kafka, accepted.sent)
    handover = ItemHandover(stores, of.policy, of.recorder, report, copies.produce)
    runner = ResendJobRunner(
        ledger.resend_jobs(),
        items,
        ledger.job_freezing(),
        handover,
        report=report,
        hold=hold,
        stopping=stopping,
        monotonic=of.clock.monotonic,
    )
    return ResendJobParts(runner, handover)


def actions_on(ledger: SqlLedger, also: AlsoNoted = nothing_more) -> ResendJobActions:
    """Returns a person's actions on the jobs of a ledger; see ResendJobActions for `also`."""
    return ResendJobActions(ledger.resend_jobs(), ledger.job_items(), also)


def limits_of(settings: ResendSettings, rate_per_s: float | None = None) -> JobLimits:
    """Returns the limits of a new job; its own rate is bounded by that of the settings."""
    rate = settings.rate_per_s if rate_per_s is None else min(rate_per_s, settings.rate_per_s)
    return JobLimits(
        canary=settings.canary,
        rate_per_s=rate,
        error_rate=settings.error_rate,
        approve_above=settings.approve_above,
        preview_s=settings.preview_s,
    )
