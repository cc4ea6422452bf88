"""Builds a look-back from its configuration; opens its backends, which the stack closes."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import structlog
from msgspec.structs import replace

from backends.kafka.clients import TopicPartition, consumer, producer, resolve_group_protocol
from backends.metrics.families import LOOKBACK
from backends.settings import Settings, SettingsError
from channels.transports import TransportRouter
from idempotency.fleet.snapshots import BacklogSnapshot
from idempotency.sql_ledger import SqlLedger, open_ledger
from lookback.check import Checker
from lookback.checks.factory import open_checks
from lookback.consumer import ConsumerParts, LookbackConsumer
from lookback.dead_letters import PRODUCER, PoisonWriter
from lookback.desk import SqlLookbackDesk
from lookback.forwarder import Forwarder, ForwardTerms, forward_properties
from lookback.metrics import LookbackMetrics
from lookback.opening import open_store
from lookback.scheduler import CheckScheduler
from lookback.store import LookbackStore
from lookback.transaction import TxRow, TxTerms, terms_of
from lookback.upkeep import LookbackUpkeep
from message.envelope import EnvelopeError, decode
from message.vocabulary import dead_letter_topic, lane_of_topic
from sending.accepted_trace import AcceptedTrace
from sending.alerts.factory import open_desk, open_watchman
from sending.alerts.notifier import AlertNotifier
from sending.runtime.health import Health
from sending.runtime.heartbeat import ProcessHeartbeat
from sending.runtime.outage import Outage
from sending.runtime.threads import ThreadGroup
from tracing import open_recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

log = structlog.get_logger(__name__)
GROUP: Final = "{}-lookback"
_MS: Final = 1_000


class LookbackLoops(NamedTuple):
    """The loops of one process, in the order in which they stop."""

    consumer: LookbackConsumer
    checks: CheckScheduler
    forwarder: Forwarder
    upkeep: LookbackUpkeep


class OpenedLookback(NamedTuple):
    """A look-back with its health and metrics; nothing runs yet."""

    loops: LookbackLoops
    threads: ThreadGroup
    health: Health
    metrics: LookbackMetrics
    store: LookbackStore


def lookback_name() -> str:
    """Returns a name for this process in logs and leases."""
    return f"lookback-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def require_lookback(settings: Settings) -> dict[str, TxTerms]:
    """Returns the terms of each kind. Raises SettingsError."""
    if not settings.lookback.biz_types:
        raise SettingsError(
            "lookback has nothing to do: add [lookback.biz_types.NAME] with topics to hongyan.toml"
        )
    return terms_of(settings.lookback)


def open_lookback(
    settings: Settings,
    name: str,
    stack: ExitStack,
    stop: threading.Event,
    checkers: Mapping[str, Checker] | None = None,
) -> OpenedLookback:
    """Returns a look-back, not started. `checkers` are by their endpoint's name; None: those of the
    configuration. Waits for the database until `stop`. Raises SettingsError, LedgerError."""
    terms = require_lookback(settings)
    ledger = _ledger(settings, stack, stop)
    wires = TransportRouter()
    stack.callback(wires.close)
    if checkers is None:
        checkers = open_checks(settings.lookback.checks, wires, stack)
    metrics = LookbackMetrics()
    _watch(settings, ledger, wires, metrics, name, stack)
    store = open_store(ledger, settings)
    forwarder = _forwarder(settings, store, metrics, name, stack)
    checks = CheckScheduler(
        store,
        checkers,
        terms,
        metrics,
        lease_s=settings.lookback.lease_s,
        poll_s=settings.lookback.poll_s,
        on_committed=forwarder.wake,
    )
    parts = _consumer_parts(settings, store, terms, metrics)
    taking = LookbackConsumer(
        parts, settings.lookback.topic, settings.lookback.batch, on_taken=forwarder.wake
    )
    upkeep = LookbackUpkeep(settings, ledger, name)
    desk = SqlLookbackDesk(store)
    metrics.show_queues(store.oldest_committed, desk.unresolved_counts, checks.in_check)
    _beat(ledger, name, stop, store, desk, stack)
    loops = LookbackLoops(taking, checks, forwarder, upkeep)
    threads = ThreadGroup()
    return OpenedLookback(loops, threads, _health(loops, threads, stop), metrics, store)


def _ledger(settings: Settings, stack: ExitStack, stop: threading.Event) -> SqlLedger:
    waiting = Outage()
    waiting.stop = stop
    ledger = waiting.until_available("start", lambda: open_ledger(settings))
    stack.callback(ledger.close)
    return ledger


def _beat(
    ledger: SqlLedger,
    name: str,
    stop: threading.Event,
    store: LookbackStore,
    desk: SqlLookbackDesk,
    stack: ExitStack,
) -> None:
    """Starts the heartbeat. Its backlog is the fleet's: all processes empty one table."""

    def backlog() -> BacklogSnapshot:
        waiting = store.to_forward()
        parked = sum(desk.unresolved_counts().values())
        return BacklogSnapshot(waiting.rows, waiting.oldest_ms / _MS, parked)

    heartbeat = ProcessHeartbeat(ledger, LOOKBACK, name, stop, backlog)
    heartbeat.start()
    stack.callback(heartbeat.close)


def _watch(
    settings: Settings,
    ledger: SqlLedger,
    wires: TransportRouter,
    metrics: LookbackMetrics,
    name: str,
    stack: ExitStack,
) -> None:
    """Starts the monitor of alerts."""
    desk = open_desk(AlertNotifier, settings, metrics.registry, ledger, wires, name)
    monitor = open_watchman(settings, metrics.registry, ledger, desk, time.monotonic)
    monitor.start()
    stack.callback(monitor.stop)


def _forwarder(
    settings: Settings,
    store: LookbackStore,
    metrics: LookbackMetrics,
    name: str,
    stack: ExitStack,
) -> Forwarder:
    terms = settings.lookback
    recorder = open_recorder(settings, name)
    stack.callback(recorder.close)
    show_drops(recorder, metrics.registry)
    trace = AcceptedTrace(recorder, name, hasher(settings.outcomes.hash_key))
    changes = forward_properties(terms.lease_s)
    return Forwarder(
        store,
        producer(settings.kafka, client_id=name, changes=changes),
        metrics,
        ForwardTerms(terms.forward_batch, terms.lease_s, terms.poll_s, terms.drain_s),
        on_acknowledged=_traced(trace, settings.kafka.topic_prefix),
    )


def _traced(trace: AcceptedTrace, prefix: str) -> Callable[[TxRow, Any], None]:
    """Returns a recorder of messages that are notifications of a lane."""

    def record(row: TxRow, message: Any) -> None:
        if lane_of_topic(row.topic or "", prefix) is None:
            return
        try:
            trace.sent(decode(row.body), message)
        except EnvelopeError as exc:
            log.warning("forwarded_poison", tx_id=row.tx_id, topic=row.topic, cause=str(exc))

    return record


def _consumer_parts(
    settings: Settings,
    store: LookbackStore,
    terms: Mapping[str, TxTerms],
    metrics: LookbackMetrics,
) -> ConsumerParts:
    kafka = replace(
        settings.kafka, group_id=GROUP.format(settings.kafka.group_id), group_instance_id=""
    )
    protocol = resolve_group_protocol(kafka)
    letters = producer(settings.kafka, client_id="lookback-dead", changes=PRODUCER)
    return ConsumerParts(
        consumer(kafka, protocol=protocol, client_id="lookback", on_commit=_judge_commit),
        store,
        PoisonWriter(letters, dead_letter_topic(settings.kafka.topic_prefix)),
        terms,
        metrics,
        TopicPartition,
    )


def _judge_commit(error: Any, places: Sequence[Any]) -> None:
    """Logs a commit that failed: its records are read again, which changes nothing."""
    failed = error or next((one.error for one in places if one.error is not None), None)
    if failed is not None and failed.name() != "_NO_OFFSET":
        log.warning("commit_failed", cause=str(failed))


def _health(loops: LookbackLoops, threads: ThreadGroup, stop: threading.Event) -> Health:
    def not_ready() -> str | None:
        if stop.is_set():
            return "draining"
        if cause := loops.consumer.away or loops.consumer.held:
            return cause
        return None if loops.consumer.assigned else "the group has given no partition yet"

    return Health(
        {
            "consumer": lambda: loops.consumer.beat,
            "checks": lambda: loops.checks.beat,
            "forwarder": lambda: loops.forwarder.beat,
        },
        ready=not_ready,
        dead=lambda: threads.failure[0] if threads.failure else None,
        waiting=lambda: bool(loops.consumer.away) or stop.is_set(),
        monotonic=time.monotonic,
    )
