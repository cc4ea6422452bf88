"""Builds the job that enters lost deliveries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from backends.settings import Settings
from idempotency.sql_ledger import SqlLedger
from policy.schema import Policy
from recovery.lost.job import EntryStores, LostDeliveries
from recovery.lost.records import LostRecords
from recovery.lost.silence import SilentQuestions
from recovery.lost.telemetry import LostTelemetry
from recovery.retry.retry_lane import RetryLane
from recovery.unknown.resolver import Asking
from sending.runtime.clock import Clock
from tracing.events import Recorder
from tracing.masks import hasher


class LostSurroundings(NamedTuple):
    """Parts of the recovery that the job shares."""

    settings: Settings
    policy: Policy
    ledger: SqlLedger
    routes: Mapping[str, RetryLane]
    engine: Asking
    recorder: Recorder
    registry: CollectorRegistry
    clock: Clock
    name: str


def open_lost(
    of: LostSurroundings, *, hold: Callable[[str, int], bool], stopping: Callable[[], bool]
) -> LostDeliveries:
    """Returns the job; it opens Kafka only for a finding that needs it."""
    ledger, findings, queries = of.ledger, of.ledger.findings(), of.ledger.queries()
    stores = EntryStores(
        findings=findings,
        ledger=ledger,
        rows=queries.by_keys,
        archived=ledger.archived(of.settings.recovery.archive_dir, of.settings.base),
        records=LostRecords(of.settings.kafka),
    )
    silence = SilentQuestions(
        findings,
        queries,
        of.routes,
        of.engine,
        stopping=stopping,
        monotonic=of.clock.monotonic,
    )
    return LostDeliveries(
        stores,
        of.policy,
        name=of.name,
        silence=silence,
        report=LostTelemetry(
            of.recorder,
            of.registry,
            clock=of.clock,
            name=of.name,
            hash_receiver=hasher(of.settings.outcomes.hash_key),
        ),
        hold=hold,
        stopping=stopping,
        monotonic=of.clock.monotonic,
    )
