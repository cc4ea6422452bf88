"""The worker's process: opens the backends, runs the worker, drains on SIGTERM, returns an exit code."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import structlog
from msgspec.structs import replace

from backends.addresses import address_of
from backends.interpreter import tune_interpreter
from backends.kafka import clients as kafka
from backends.logs import identified
from backends.open_files import open_files_limit
from backends.settings import Settings
from channels.template_support import gaps
from channels.tokens.shared import open_tokens
from channels.transports import TransportRouter
from dispatcher.kafka.group_member import MemberFenced
from dispatcher.kafka.source import SourceFailed
from dispatcher.metrics import Metrics
from dispatcher.wiring import BuiltWorker, OpenedBackends, build, routes_for, worker_name
from dispatcher.worker import WorkerFailed
from idempotency.ledger import LedgerUnavailable
from idempotency.prefilter_redis import open_prefilter
from idempotency.sql_ledger import open_ledger
from message.vocabulary import Lane, lanes_matching
from policy.loading import load_for
from policy.schema import Policy
from policy.templates.templates import Templates
from policy.versions import Versions
from sending.alerts.factory import open_desk, open_watchman
from sending.alerts.notifier import AlertNotifier
from sending.policy_reload import in_force_at_start
from sending.runtime.clock import Clock
from sending.runtime.exit_codes import EXIT_DONE, EXIT_FAILED
from sending.runtime.health import HealthServer
from sending.runtime.outage import Outage
from sending.template_renderer import followed_templates
from tracing import open_recorder

_OTHER_FILES: Final = 250
"""Beside a connection for each call: those to Kafka, database and Redis, idle ones, libraries, logs."""

log = structlog.get_logger(__name__)


def run_worker(
    settings: Settings, stop: threading.Event, patterns: Sequence[str] | None = None
) -> int:
    """Serves the lanes until `stop` is set. Returns the process's exit code. Raises SettingsError,
    PolicyError, KafkaUnavailable, LedgerError if it cannot start."""
    lanes = lanes_matching(patterns or settings.worker.lanes)
    policy = load_for(settings)
    settings = _named(settings)
    with ExitStack() as stack, identified(worker=settings.worker.id):
        try:
            app = open_worker(settings, policy, lanes, stack, stop)
        except LedgerUnavailable:
            if not stop.is_set():
                raise
            app = None
        if app is None:
            log.info("stopped_before_start")
            return EXIT_DONE
        return _run(app)


def _named(settings: Settings) -> Settings:
    """Returns the settings with a name for the worker, which its log has from the first event on."""
    return replace(settings, worker=replace(settings.worker, id=worker_name(settings)))


def open_worker(
    settings: Settings,
    policy: Policy,
    lanes: Sequence[Lane],
    stack: ExitStack,
    stop: threading.Event,
) -> BuiltWorker | None:
    """Opens a worker and its backends, which `stack` closes. Returns None if `stop` was set while waiting.

    `policy` holds where no version was ever applied.
    """
    address_of(settings.worker.health_address, "worker.health_address", "127.0.0.1:9464")
    if not kafka.wait_for_broker(settings.kafka, stop=stop):
        return None
    outage = Outage()
    outage.stop = stop
    ledger = outage.until_available("start", lambda: open_ledger(settings))
    stack.callback(ledger.close)
    versions = Versions(ledger.database)
    now = outage.until_available("start", lambda: in_force_at_start(settings, versions))
    templates = outage.until_available(
        "start", lambda: followed_templates(settings, ledger.database)
    )
    name = settings.worker.id or socket.gethostname()
    recorder = open_recorder(settings, name, spans=True)
    stack.callback(recorder.close)
    transport = TransportRouter()
    stack.callback(transport.close)
    tokens = open_tokens(settings, transport)
    stack.callback(tokens.close)
    metrics = Metrics()
    alerts = open_desk(AlertNotifier, settings, metrics.registry, ledger, transport, name)
    parts = OpenedBackends(
        ledger=ledger,
        announced=ledger.announced,
        prefilter=open_prefilter(settings, outage.until_available("start", ledger.identity)),
        recorder=recorder,
        transport=transport,
        tokens=tokens,
        templates=templates,
        metrics=metrics,
        alerts=alerts,
        versions=versions,
        controls=ledger.controls(),
        sums=ledger.sums(),
        number=now.number,
        stack=stack,
        protocol=kafka.resolve_group_protocol(settings.kafka),
    )
    followed = now.policy if now.number else policy
    app = outage.until_available("start", lambda: build(settings, followed, lanes, parts, stop))
    watchman = open_watchman(settings, metrics.registry, ledger, alerts, Clock().monotonic)
    watchman.start()  # its failures never hold up the worker
    stack.callback(watchman.stop)
    health = _health(settings, app, stack)
    _tell_gaps(settings, followed, lanes, templates.current)
    _tell_few_files(followed, lanes)
    tune_interpreter()
    log.info("worker_started", health=health, lanes=[lane.name for lane in lanes])
    return app


def _health(settings: Settings, app: BuiltWorker, stack: ExitStack) -> str:
    """Starts the server of health and metrics, which `stack` stops. Returns its address."""
    server = HealthServer(settings.worker.health_address, app.health, app.metrics.registry)
    server.start()
    stack.callback(server.stop)
    return server.address


def _tell_gaps(
    settings: Settings, policy: Policy, lanes: Sequence[Lane], templates: Templates
) -> None:
    """Logs the accounts that a template leaves out."""
    routes = routes_for(settings, policy, lanes)
    accounts = {lane: [a for a, _ in of_lane.values()] for lane, of_lane in routes.items()}
    for gap in gaps(templates, accounts):
        named = [lane.name for lane in gap.lanes]
        log.warning("template_leaves_out", template=gap.template.name, lanes=named, what=gap.says)


def _tell_few_files(policy: Policy, lanes: Sequence[Lane]) -> None:
    """Logs a limit of open files that leaves no connection for each call that may be under way."""
    limit, calls = open_files_limit(), sum(policy.of(lane).threads for lane in lanes)
    if limit < calls + _OTHER_FILES:
        remedy = (
            f"let the process open {calls + _OTHER_FILES} files, or lower threads in the policy"
        )
        log.warning("open_files_few", limit=limit, calls=calls, remedy=remedy)


def _run(app: BuiltWorker) -> int:
    try:
        app.worker.run()
    except (WorkerFailed, SourceFailed, MemberFenced) as exc:
        log.critical("worker_failed", cause=str(exc))
        return EXIT_FAILED
    return EXIT_DONE


def leave(code: int) -> None:
    """Ends the process now, even while a client library waits for a broker."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
