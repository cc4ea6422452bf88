"""Builds the gateway's parts from the configuration; the stack closes them, the last one first."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from backends.metrics.families import GATEWAY
from backends.redis.token_bucket import RedisBuckets
from backends.settings import Settings, SettingsError
from backends.sql.database import Database
from hongyan_client.errors import ClientError
from hongyan_client.publisher import Publisher
from idempotency.fleet.snapshots import BacklogSnapshot
from idempotency.sql_ledger import SqlLedger, clock_of, open_ledger
from message.delivery import Rendered
from message.envelope import Notification
from policy.schema import Policy
from policy.templates.active import TemplateFollower
from policy.versions import Versions
from policy.watcher import PolicyWatcher
from producer.gateway.endpoint import GatewayEndpoint, GatewayParts
from producer.gateway.idempotency import OncePerKey
from producer.gateway.key_ring import KeyRing
from producer.gateway.key_store import KeyStore
from producer.gateway.metrics import GatewayMetrics
from producer.gateway.rate_limits import KeyRates
from producer.gateway.recall_desk import RecallDesk
from producer.gateway.request_purge import RequestPurge
from producer.gateway.request_store import RequestStore
from producer.gateway.story_reader import StoryReader
from producer.gateway.submission import Publishes, Submission
from recovery.recall.factory import RecallMeans
from sending.accepted_trace import AcceptedTrace
from sending.notification_check import Render
from sending.policy_reload import in_force_at_start
from sending.receiver_check import ReceiverCheck
from sending.receiver_marks import GateMarks, open_marks
from sending.runtime.clock import Clock
from sending.runtime.heartbeat import ProcessHeartbeat
from sending.template_check import TemplateCheck
from sending.template_renderer import followed_templates
from tracing import open_recorder
from tracing.events import Recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

_POOL: Final = 8
_STATEMENT_MS: Final = 5_000
_COMMAND: Final = "gateway"
_CLOSE_S: Final = 5.0


class OpenedGateway(NamedTuple):
    """The parts that the process watches."""

    endpoint: GatewayEndpoint
    ring: KeyRing
    purge: RequestPurge
    heartbeat: ProcessHeartbeat


class GatewayPolicy:
    """The policy in force; the watcher's thread replaces it, any thread reads it."""

    def __init__(self, policy: Policy) -> None:
        self.current = policy

    def adopt(self, policy: Policy) -> None:
        """Follows a newer version."""
        self.current = policy


def gateway_name() -> str:
    """Returns the name of this process in logs and trace."""
    return f"{_COMMAND}-{socket.gethostname()}-{os.getpid()}"


def open_gateway(
    settings: Settings,
    stack: ExitStack,
    publisher: Publishes | None = None,
    stop: threading.Event | None = None,
) -> OpenedGateway:
    """Opens everything and starts the threads. `publisher` replaces Kafka's, for measurements; an order
    to drain sets `stop`. Raises SettingsError, LedgerError, PolicyError, TemplateFileError."""
    ledger = open_ledger(settings)
    stack.callback(ledger.close)
    database = Database(ledger.database.url, pool_size=_POOL, statement_ms=_STATEMENT_MS)
    stack.callback(database.close)
    clock = clock_of(database)
    metrics = GatewayMetrics()
    recorder = open_recorder(settings, gateway_name())
    stack.callback(recorder.close)
    show_drops(recorder, metrics.registry)
    ring = KeyRing(KeyStore(database, clock).live, wall_ms)
    ring.start()
    stack.callback(ring.stop)
    requests = RequestStore(database, clock)
    purge = RequestPurge(requests)
    purge.start()
    stack.callback(purge.stop)
    submission = _submission(settings, ledger, recorder, metrics, publisher, stack, ring)
    parts = GatewayParts(
        ring,
        _rates(settings, ledger, stack),
        submission.submission,
        OncePerKey(requests, wall_ms),
        StoryReader(database),
        _recalls(settings, ledger, recorder, submission.policy, requests, stack),
        metrics,
    )
    heartbeat = _heartbeat(ledger, submission.unacknowledged, stop or threading.Event(), stack)
    return OpenedGateway(GatewayEndpoint(parts), ring, purge, heartbeat)


def _heartbeat(
    ledger: SqlLedger,
    unacknowledged: Callable[[], float],
    stop: threading.Event,
    stack: ExitStack,
) -> ProcessHeartbeat:
    def backlog() -> BacklogSnapshot:
        return BacklogSnapshot(int(unacknowledged()))

    name = f"{gateway_name()}-{secrets.token_hex(3)}"
    heartbeat = ProcessHeartbeat(ledger, GATEWAY, name, stop, backlog)
    heartbeat.start()
    stack.callback(heartbeat.close)
    return heartbeat


def wall_ms() -> int:
    """Returns this machine's time, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class _Submitting(NamedTuple):
    submission: Submission
    policy: GatewayPolicy
    unacknowledged: Callable[[], float]
    """Returns the records that wait for Kafka's answer."""


def _submission(
    settings: Settings,
    ledger: SqlLedger,
    recorder: Recorder,
    metrics: GatewayMetrics,
    publisher: Publishes | None,
    stack: ExitStack,
    ring: KeyRing,
) -> _Submitting:
    templates = followed_templates(settings, ledger.database)
    policy = _follow_policy(settings, ledger, templates, stack)
    trace = AcceptedTrace(recorder, _COMMAND, hasher(settings.outcomes.hash_key))
    used: Any = publisher or _publisher(settings, stack)

    def unacknowledged() -> float:
        return float(getattr(used, "unacknowledged", 0))

    metrics.show(lambda: min(ring.age_s, 1e9), unacknowledged)

    def life_ms(notification: Notification) -> int:
        return policy.current.of(notification.lane).lifetime_ms(notification.ttl_ms)

    submission = Submission(
        used,
        rendering(templates),
        ReceiverCheck(settings.accounts),
        trace.acknowledged,
        life_ms,
        prefix=settings.kafka.topic_prefix,
        now_ms=wall_ms,
    )
    return _Submitting(submission, policy, unacknowledged)


def rendering(templates: TemplateFollower) -> Render:
    """Returns a renderer over the templates in force."""

    def render(notification: Notification) -> Rendered | None:
        return TemplateCheck(templates.current)(notification)

    return render


def _publisher(settings: Settings, stack: ExitStack) -> Publisher:
    kafka = settings.kafka
    try:
        publisher = Publisher(
            kafka.bootstrap,
            client_id="hongyan-gateway",
            properties=kafka.client,
            delivery_timeout_s=settings.gateway.timeout_s,
        )
    except ClientError as exc:
        raise SettingsError(f"kafka: {exc}") from exc
    stack.callback(publisher.close, _CLOSE_S)
    return publisher


def _follow_policy(
    settings: Settings, ledger: SqlLedger, templates: TemplateFollower, stack: ExitStack
) -> GatewayPolicy:
    versions = Versions(ledger.database)
    now = in_force_at_start(settings, versions)
    followed = GatewayPolicy(now.policy)
    ledger.announced.follow(now.policy.announced)

    def adopt(policy: Policy) -> None:
        ledger.announced.follow(policy.announced)
        followed.adopt(policy)

    watch = PolicyWatcher(
        versions, settings.accounts, adopt, number=now.number, beside=templates.look
    )
    watcher = threading.Thread(target=watch.run, name="policy", daemon=True)
    watcher.start()
    stack.callback(watcher.join, _CLOSE_S)
    stack.callback(watch.stop)
    return followed


def _rates(settings: Settings, ledger: SqlLedger, stack: ExitStack) -> KeyRates:
    if not settings.redis.url:
        return KeyRates(None)
    try:
        buckets = RedisBuckets(settings.redis, ledger.identity())
    except ValueError as exc:
        raise SettingsError(f"redis.url: {exc}") from exc
    stack.callback(buckets.close)
    return KeyRates(buckets)


def _recalls(
    settings: Settings,
    ledger: SqlLedger,
    recorder: Recorder,
    policy: GatewayPolicy,
    requests: RequestStore,
    stack: ExitStack,
) -> RecallDesk:
    shared = open_marks(settings, ledger.identity(), stack)

    def means() -> RecallMeans:
        now = policy.current
        return RecallMeans(ledger, now, recorder, GateMarks(now, shared, clock=Clock()))

    return RecallDesk(settings, means, ledger.queries(), requests)
