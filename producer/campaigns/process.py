"""The process of `hongyan campaign run`: open, send until SIGTERM, write the checkpoints, end.

The end, in this order: no run is opened any more; the senders take up no row, await Kafka's answers (at
most DRAIN_S) and write their checkpoints; the publisher closes; the trace is written out.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from backends.addresses import address_of
from backends.logs import identified
from backends.metrics.families import CAMPAIGNS
from backends.metrics.process_info import show_process
from backends.settings import Settings
from channels.transports import TransportRouter
from hongyan_client.publisher import Publisher
from idempotency.ledger import LedgerUnavailable
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.structs import describe_structs
from policy.templates.active import templates_in_force
from policy.templates.templates import Templates
from policy.templates.versions import TemplateVersions
from producer.campaigns.notifications import RowChecks
from producer.campaigns.run_opening import RunOpening
from producer.campaigns.run_sender import DRAIN_S
from producer.campaigns.run_store import runs_of
from producer.campaigns.runner import CampaignRunner, RunnerParts
from producer.campaigns.store import campaigns_of
from producer.campaigns.telemetry import CampaignTelemetry
from sending.accepted_trace import AcceptedTrace
from sending.alerts.factory import open_desk, open_watchman
from sending.alerts.notifier import AlertNotifier
from sending.runtime.exit_codes import EXIT_DONE, EXIT_FAILED
from sending.runtime.health import Health, HealthServer
from sending.runtime.heartbeat import ProcessHeartbeat
from sending.runtime.threads import ThreadGroup
from tracing import open_recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

log = structlog.get_logger(__name__)
_WATCH_S: Final = 0.2
_CLOSE_S: Final = 5.0
_JOIN_S: Final = DRAIN_S + 10.0
_RETRY_S: Final = 1.0
_NS_PER_MS: Final = 1_000_000
_KEY: Final = "campaigns.health_address"
MakeRowChecks = Callable[[Templates], RowChecks]
"""Returns the checks of `hongyan send` with these templates."""


def campaigns_name(settings: Settings) -> str:
    """Returns `campaigns.id`, or a unique name."""
    own = f"campaigns-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    return settings.campaigns.id or own


def run_campaigns(settings: Settings, stop: threading.Event, make_checks: MakeRowChecks) -> int:
    """Sends campaigns until `stop` is set. Returns the exit code. Raises SettingsError, LedgerError."""
    terms = settings.campaigns
    address_of(terms.health_address, _KEY, "127.0.0.1:9468")
    describe_structs()
    name, threads = campaigns_name(settings), ThreadGroup()
    with ExitStack() as stack, identified(worker=name):
        ledger = _open_ledger(settings, stop)
        if ledger is None:
            return EXIT_DONE
        stack.callback(ledger.close)
        registry = CollectorRegistry()
        show_process(registry, CAMPAIGNS)
        runner = _runner(settings, stop, make_checks, ledger, registry, name, stack)
        server = HealthServer(terms.health_address, _health(runner, threads), registry, _KEY)
        server.start()
        stack.callback(server.stop)
        heartbeat = ProcessHeartbeat(ledger, CAMPAIGNS, name, stop, runner.backlog)
        heartbeat.start()
        stack.callback(heartbeat.close)
        _watch(settings, ledger, registry, name, stack)
        log.info("campaigns_started", health=server.address)
        return _run(runner, threads, stop)


def _open_ledger(settings: Settings, stop: threading.Event) -> SqlLedger | None:
    """Returns the ledger; waits for its database. Returns None if `stop` was set before."""
    while not stop.is_set():
        try:
            return open_ledger(settings)
        except LedgerUnavailable as exc:
            log.warning("database_away", cause=str(exc), what="tried again")
            stop.wait(_RETRY_S)
    return None


def _watch(
    settings: Settings, ledger: SqlLedger, registry: CollectorRegistry, name: str, stack: ExitStack
) -> None:
    """Starts the monitor of alerts."""
    wires = TransportRouter()
    stack.callback(wires.close)
    desk = open_desk(AlertNotifier, settings, registry, ledger, wires, name)
    monitor = open_watchman(settings, registry, ledger, desk, time.monotonic)
    monitor.start()
    stack.callback(monitor.stop)


def _runner(
    settings: Settings,
    stop: threading.Event,
    make_checks: MakeRowChecks,
    ledger: SqlLedger,
    registry: CollectorRegistry,
    name: str,
    stack: ExitStack,
) -> CampaignRunner:
    """Returns the runner; `stack` closes publisher and trace."""
    recorder = open_recorder(settings, name)
    stack.callback(recorder.close)
    show_drops(recorder, registry)
    accepted = AcceptedTrace(recorder, "campaign", hasher(settings.outcomes.hash_key))

    kafka = settings.kafka
    publisher = Publisher(kafka.bootstrap, client_id="hongyan-campaigns", properties=kafka.client)
    stack.callback(publisher.close, _CLOSE_S)
    versions = TemplateVersions(ledger.database)
    parts = RunnerParts(
        store=campaigns_of(ledger),
        runs=runs_of(ledger),
        duties=ledger.duties(),
        publisher=publisher,
        accepted=accepted.acknowledged,
        opening=RunOpening(kafka, partial(_checks, settings, versions, make_checks)),
        telemetry=CampaignTelemetry(registry, lambda: time.time_ns() // _NS_PER_MS),
        sample_ratio=settings.telemetry.sample_ratio,
    )
    return CampaignRunner(
        parts,
        holder=name,
        lease_s=settings.campaigns.lease_s,
        stop=stop,
        monotonic=time.monotonic,
    )


def _checks(
    settings: Settings, versions: TemplateVersions, make_checks: MakeRowChecks
) -> RowChecks:
    return make_checks(templates_in_force(settings, versions).templates)


def _health(runner: CampaignRunner, threads: ThreadGroup) -> Health:
    return Health(
        {"looks": lambda: runner.last_look},
        ready=lambda: runner.database_away,
        dead=lambda: threads.failure[0] if threads.failure else None,
        waiting=lambda: bool(runner.database_away),
        monotonic=time.monotonic,
    )


def _run(runner: CampaignRunner, threads: ThreadGroup, stop: threading.Event) -> int:
    thread = threads.start("campaigns", runner.run)
    while not stop.is_set() and not threads.failed.wait(_WATCH_S):
        pass
    stop.set()
    thread.join(_JOIN_S)
    if threads.failure is not None:
        log.critical("campaigns_failed", thread=threads.failure[0], cause=repr(threads.failure[1]))
        return EXIT_FAILED
    log.info("stopped")
    return EXIT_DONE
