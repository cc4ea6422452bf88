"""The process of `hongyan relay`: opens the business's database, publishes until SIGTERM, drains.

The end, in this order: no row is claimed any more; published batches are marked, for at most
`relay.drain_s`; Kafka's client ends; the heartbeat row says that the relay ended. Rows that are not marked
then go out again after their lease, with the same ids.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

import structlog

from backends.logs import identified
from backends.metrics.families import RELAY
from backends.settings import DatabaseSettings, Settings
from channels.http_client.transport import Transport
from hongyan_client.publisher import Publisher
from idempotency.sql_ledger import SqlLedger, open_ledger
from producer.relay.accepted import open_announcement
from producer.relay.ledger import RelayLedger
from producer.relay.marker import RelayMarker
from producer.relay.metrics import RelayMetrics
from producer.relay.opening import OpenedOutbox, open_outbox
from producer.relay.outage import KafkaOutage
from producer.relay.relay import Relay, RelaySignals, RelayTerms
from producer.relay.reporter import ENDED, RelayReporter
from producer.relay.rights import try_rights
from producer.relay.upkeep import OutboxUpkeep
from producer.relay.wakeups import Wakeups
from sending.alerts.notifier import AlertNotifier, AlertWindow
from sending.alerts.webhook import AlertHook
from sending.runtime.exit_codes import EXIT_DONE, EXIT_FAILED
from sending.runtime.health import Health, HealthServer
from sending.runtime.heartbeat import ProcessHeartbeat
from sending.runtime.threads import ThreadGroup

log = structlog.get_logger(__name__)
_WATCH_S: Final = 0.2


class RelayParts(NamedTuple):
    """The parts of a relay, built and not started."""

    relay: Relay
    marker: RelayMarker
    reporter: RelayReporter
    upkeep: OutboxUpkeep
    wakeups: Wakeups | None
    publisher: Publisher
    metrics: RelayMetrics
    signals: RelaySignals


def run_relay(settings: Settings, stop: threading.Event) -> int:
    """Publishes until `stop` is set. Returns the exit code. Raises SettingsError, OutboxTrouble."""
    name = relay_name()
    with ExitStack() as stack, identified(worker=name):
        opened = open_outbox(settings)
        stack.callback(opened.engine.dispose)
        opened.rows.backlog()  # raises before anything starts if the tables are not there
        try_rights(opened.store, settings.relay.keep_hours)
        parts = _built(settings, opened, name, stack, stop)
        threads = _started(parts)
        claiming = _claiming(threads, parts, opened)
        health = _health(settings, parts, threads)
        stack.callback(health.stop)
        log.info("relay_started", health=health.address, table=opened.store.name)
        while not stop.is_set() and not threads.failed.wait(_WATCH_S):
            pass
        stop.set()
        parts.signals.wake.set()
        until = time.monotonic() + settings.relay.drain_s
        for thread in claiming:
            thread.join(max(0.0, until - time.monotonic()))
        return _drained(settings, parts, threads)


def relay_name() -> str:
    """Returns the name of this process in the log and in the rows that it leases."""
    return f"relay-{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(3)}"


def _built(
    settings: Settings, opened: OpenedOutbox, name: str, stack: ExitStack, stop: threading.Event
) -> RelayParts:
    terms = settings.relay
    metrics = RelayMetrics(settings.kafka.topic_prefix)
    publisher = _publisher(settings)
    outage = KafkaOutage()
    signals = RelaySignals(stop, threading.Event())
    announce = open_announcement(settings, name, metrics.registry, stack)
    marker = RelayMarker(opened.store, outage, metrics, signals.wake, announce=announce)
    relay = Relay(
        opened.store,
        publisher,
        marker,
        outage,
        metrics,
        RelayTerms(name, terms.lease_s, terms.poll_s, terms.batch),
        signals,
    )
    ledger = _ledger(settings, metrics, name, signals, stack)
    reporter = RelayReporter(
        opened.rows,
        metrics,
        _alerts(settings, ledger, metrics, name, stack),
        name=name,
        table=opened.store.name,
        late_s=terms.late_s,
        stop=stop,
    )
    upkeep = OutboxUpkeep(opened.store, terms.keep_hours, stop)
    wakeups = Wakeups(opened.store, signals) if opened.store.is_postgres else None
    return RelayParts(relay, marker, reporter, upkeep, wakeups, publisher, metrics, signals)


def _publisher(settings: Settings) -> Publisher:
    """Returns Kafka's client. Its own tries end within the lease, so that no late one crosses a new one."""
    return Publisher(
        settings.kafka.bootstrap,
        client_id="hongyan-relay",
        properties=settings.kafka.client,
        delivery_timeout_s=settings.relay.lease_s / 2,
    )


def _ledger(
    settings: Settings, metrics: RelayMetrics, name: str, signals: RelaySignals, stack: ExitStack
) -> RelayLedger | None:
    """Returns the ledger where one is configured. It begins with the first answer."""
    if settings.database.url == DatabaseSettings().url:
        return None

    def beat(opened: SqlLedger) -> Callable[[], None]:
        heartbeat = ProcessHeartbeat(opened, RELAY, name, signals.stop, metrics.snapshot)
        heartbeat.start()
        return heartbeat.close

    ledger = RelayLedger(lambda: open_ledger(settings), beat)
    ledger.start()
    stack.callback(ledger.close)
    return ledger


def _alerts(
    settings: Settings,
    windows: AlertWindow | None,
    metrics: RelayMetrics,
    name: str,
    stack: ExitStack,
) -> AlertNotifier:
    """Returns the notifier. It shares the fleet's windows, where a ledger has them."""
    post = None
    if settings.alerts.webhook:
        transport = Transport()
        stack.callback(transport.close)
        post = AlertHook(settings.alerts, transport).post
    return AlertNotifier(
        metrics.registry,
        settings.alerts.window_s,
        windows=windows,
        post=post,
        post_s=settings.alerts.timeout_s,
        name=name,
    )


def _started(parts: RelayParts) -> ThreadGroup:
    threads = ThreadGroup()
    threads.start("marks", parts.marker.run)
    threads.start("report", parts.reporter.run)
    threads.start("upkeep", parts.upkeep.run)
    if parts.wakeups is not None:
        threads.start("wakeups", parts.wakeups.run)
    return threads


def _claiming(
    threads: ThreadGroup, parts: RelayParts, opened: OpenedOutbox
) -> list[threading.Thread]:
    """Starts the threads that claim: one on SQLite, which has one writer at a time."""
    started = [threads.start("relay", parts.relay.run)]
    if not opened.store.is_sqlite:
        started.append(threads.start("help", parts.relay.help))
    return started


def _health(settings: Settings, parts: RelayParts, threads: ThreadGroup) -> HealthServer:
    def dead() -> str | None:
        return threads.failure[0] if threads.failure else None

    health = Health(
        {"relay": lambda: parts.relay.turn, "marks": lambda: parts.marker.turn},
        ready=lambda: "the outbox's database does not answer" if parts.relay.away else None,
        dead=dead,
        waiting=lambda: parts.relay.away,
        monotonic=time.monotonic,
        stuck_after_s=60.0 + settings.relay.lease_s,
    )
    server = HealthServer(
        settings.relay.health_address, health, parts.metrics.registry, "relay.health_address"
    )
    server.start()
    return server


def _drained(settings: Settings, parts: RelayParts, threads: ThreadGroup) -> int:
    """Ends the marks and Kafka's client, once no row is claimed any more. Returns the exit code."""
    deadline = time.monotonic() + settings.relay.drain_s
    marked = parts.marker.close(settings.relay.drain_s)
    left = parts.publisher.close(max(0.0, deadline - time.monotonic()))
    parts.reporter.report(ENDED)
    log.info("stopped", all_marked=marked, unacknowledged=left)
    if threads.failure is not None:
        name, cause = threads.failure
        log.critical("relay_failed", thread=name, cause=repr(cause))
        return EXIT_FAILED
    return EXIT_DONE
