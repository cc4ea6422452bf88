"""Builds a recovery from its configuration; opens its backends, which the stack closes."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

from backends.kafka.group_lag import GroupLagQuery
from backends.kafka.retention import topic_days
from backends.metrics.readings import Reading, show_readings
from backends.metrics.shared_families import IN_FLIGHT, THREADS
from backends.program import program_version
from backends.settings import Settings, SettingsError
from channels.engine import Engine
from channels.tokens.contract import Tokens
from channels.tokens.shared import open_tokens
from channels.transports import TransportRouter
from idempotency.ledger import RECOVERY, WorkerInfo
from idempotency.recovery.contract import RecoveryStore
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery
from message.vocabulary import LANES, Lane
from policy.schema import LanePolicy, Policy
from policy.templates.active import TemplateFollower
from policy.topic_retention import topic_keep_days
from policy.versions import Versions
from policy.watcher import PolicyWatcher
from recovery.activity import Activity, Sending
from recovery.alerts import Alerts
from recovery.archive_job import Archiving
from recovery.control import PausedRetries, PoolsByLane, RecoverySnapshotSource
from recovery.dead_letters.indexer import DeadLetterIndexer
from recovery.group_lag import GroupLagMonitor
from recovery.lost.factory import LostSurroundings, open_lost
from recovery.lost.job import LostDeliveries
from recovery.outcomes.factory import open_publishers, require_settings
from recovery.outcomes.publisher import OutcomePublisher
from recovery.policy_reload import RecoveryPolicyReload, retry_lane
from recovery.resend_jobs.factory import JobSurroundings, ResendJobParts, open_resend_jobs
from recovery.retry.line_watch import LineWatch
from recovery.retry.pace import RetryPace, retry_pace
from recovery.retry.pool import RetryPool, RetryWork
from recovery.retry.prompts import Prompts
from recovery.retry.retry_lane import RetryLane
from recovery.retry.settler import RetryContext, RetryKind, RetrySettler
from recovery.retry.stage import RetryStage, served
from recovery.service import Recovery, RecoveryParts
from recovery.telemetry import RecoveryMetrics, RecoveryTelemetry
from recovery.unknown.resolver import Render, Resolving
from sending.accounts.limits import AccountsByLane, SendLimits, open_quotas
from sending.accounts.receiver_limits import Delays
from sending.accounts.snapshots import account_snapshots
from sending.alerts.factory import open_desk, open_watchman
from sending.lane_routes import routes_of
from sending.policy_reload import in_force_at_start, policy_readings
from sending.receiver_marks import GateMarks, open_marks
from sending.runtime.clock import Clock
from sending.runtime.control import ControlWatcher
from sending.runtime.health import Health
from sending.runtime.lease import WorkerLease
from sending.runtime.outage import Outage
from sending.runtime.threads import ThreadGroup
from sending.sum_writer import SumUpkeep, SumWriter
from sending.template_renderer import TemplateRejected, followed_templates, rendered
from tracing import open_recorder
from tracing.events import Recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

_MS: Final = 1_000
_BEAT_SHARE: Final = 1 / 6
_LATE_LOOKS: Final = 15
_LEAST_LATE_S: Final = 15.0
"""A schedule that was silent for longer has failed; the built-in one replaces Celery earlier."""


class OpenedRecovery(NamedTuple):
    """A recovery with its health and metrics."""

    recovery: Recovery
    health: Health
    metrics: RecoveryMetrics


def recovery_name(settings: Settings) -> str:
    """Returns `recovery.id`, or a unique name."""
    own = f"recovery-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    return settings.recovery.id or own


class _Core(NamedTuple):
    """Objects that several parts share."""

    settings: Settings
    lanes: Sequence[Lane]
    name: str
    policy: Policy
    """Policy in force at the start."""
    number: int
    """Number of its version; 0: the file's policy."""
    versions: Versions
    ledger: SqlLedger
    rows: RecoveryStore
    tokens: Tokens
    engine: Engine
    templates: TemplateFollower
    render: Render
    report: RecoveryTelemetry
    metrics: RecoveryMetrics
    recorder: Recorder
    publishers: Sequence[OutcomePublisher]
    clock: Clock
    starting: Outage
    """Of the start: `stop` ends its waits."""
    outage: Outage
    """Of the recovery at work: it drains after `stop`, and `drain` ends the waits."""
    finished: SimpleQueue[RetryWork | None]
    stop: threading.Event


def open_recovery(
    settings: Settings,
    policy: Policy,
    lanes: Sequence[Lane],
    stack: ExitStack,
    stop: threading.Event,
) -> OpenedRecovery:
    """Returns a recovery of these lanes, registered and not started. Waits for the database until `stop`.
    Raises SettingsError, LedgerError."""
    core = _core(settings, policy, lanes, stack, stop)
    plain = routes_for(settings, core.policy, lanes)
    threads = {lane.name: _threads(settings, core.policy.of(lane)) for lane in plain}
    sending = Sending(core.clock.monotonic)
    lease = _lease(core, threads, sending)
    identity = core.starting.until_available("start", core.ledger.identity)
    send_limits = _send_limits(core, plain, identity, stack)
    marks = GateMarks(core.policy, open_marks(settings, identity, stack), clock=core.clock)
    routes = _retry_lanes(core, plain, send_limits)
    callers, releasing = _pools(core, routes, threads, lease, send_limits)
    prompts = Prompts()
    context = _retries(core, routes, callers, releasing)
    settler = RetrySettler(context, core.finished, give_back=marks.give_back, on_woken=prompts.give)
    archiving = _archiving(core)
    lost, resend_jobs = _lost(core, routes), _resend_jobs(core)
    followers = [one.adopt for one in (lost, resend_jobs.handover, archiving) if one is not None]
    watch = _watch(core, routes, callers, releasing, send_limits, [marks.follow, *followers])
    pools = {lane: (callers[lane], releasing[lane]) for lane in callers}
    parts = RecoveryParts(
        name=core.name,
        lanes=list(routes),
        rows=core.rows,
        resending=_resending(core, context, settler, lease, send_limits, sending),
        settler=settler,
        resolving=_resolving(core, routes, callers),
        callers=callers,
        releasing=releasing,
        lease=lease,
        upkeep=send_limits.upkeep,
        watch=watch,
        control=_control(core, pools, prompts, lease, send_limits),
        snapshot=_snapshot(core, pools, watch, send_limits),
        outage=core.outage,
        report=core.report,
        lines=_line_watch(core, routes, settler, prompts),
        group_lag=_group_lag(core),
        dead_letters=_dead_letters(core),
        clock=core.clock,
        thread_group=ThreadGroup(),
        finished=core.finished,
        lost=lost,
        resend_jobs=resend_jobs.runner,
        archiving=archiving,
        schedule=Activity(core.clock.monotonic),
        prompts=prompts,
        sums=_sums(core),
        publishers=core.publishers,
        poll_s=settings.recovery.poll_s,
        stop=stop,
    )
    return OpenedRecovery(Recovery(parts), _health(parts), core.metrics)


def _pools(
    core: _Core,
    routes: Mapping[str, RetryLane],
    threads: Mapping[str, int],
    lease: WorkerLease,
    send_limits: SendLimits,
) -> tuple[dict[str, RetryPool], dict[str, RetryPool]]:
    """Returns each lane's pool for calls and the one for held deliveries; `/metrics` shows both. Held
    deliveries are first sends and no retries: their pool has all of the lane's threads."""
    make = partial(_pool, core, lease, send_limits.receivers.delays)
    callers = {lane: make(routes[lane], n) for lane, n in threads.items()}
    releasing = {
        lane: make(of_lane, of_lane.policy.threads, lazy=True) for lane, of_lane in routes.items()
    }
    show_readings(core.metrics.registry, lambda: _of_pools(callers, releasing))
    return callers, releasing


def _snapshot(
    core: _Core, pools: PoolsByLane, watch: PolicyWatcher, send_limits: SendLimits
) -> RecoverySnapshotSource:
    """Returns the source of the heartbeat's snapshot."""
    return RecoverySnapshotSource(
        pools,
        watch,
        core.templates,
        send_limits.accounts,
        lambda: account_snapshots(send_limits, core.tokens),
    )


def _send_limits(
    core: _Core, routes: AccountsByLane, identity: str, stack: ExitStack
) -> SendLimits:
    return open_quotas(core.settings, core.policy, routes, core.ledger, identity, core.clock, stack)


def _retry_lanes(
    core: _Core, routes: AccountsByLane, send_limits: SendLimits
) -> dict[str, RetryLane]:
    return {
        lane.name: retry_lane(core.policy, lane, of_lane, send_limits)
        for lane, of_lane in routes.items()
    }


def _core(
    settings: Settings,
    policy: Policy,
    lanes: Sequence[Lane],
    stack: ExitStack,
    stop: threading.Event,
) -> _Core:
    """Opens the backends, after the check of the configuration. Raises SettingsError."""
    routes_for(settings, policy, lanes)
    starting, clock, name = Outage(), Clock(), recovery_name(settings)
    starting.stop = stop
    ledger = starting.until_available("start", lambda: open_ledger(settings))
    stack.callback(ledger.close)
    versions = Versions(ledger.database)
    now = starting.until_available("start", lambda: in_force_at_start(settings, versions))
    templates = starting.until_available(
        "start", lambda: followed_templates(settings, ledger.database)
    )
    recorder = open_recorder(settings, name, spans=True)
    stack.callback(recorder.close)
    wires = TransportRouter()
    stack.callback(wires.close)
    tokens = open_tokens(settings, wires)
    stack.callback(tokens.close)
    metrics = RecoveryMetrics()
    show_drops(recorder, metrics.registry)
    alerts = _alerts(settings, ledger, wires, metrics, clock, name, stack)
    followed = now.policy if now.number else policy
    require_settings(settings, followed)
    ledger.announced.follow(followed.announced)
    return _Core(
        settings=settings,
        lanes=lanes,
        name=name,
        policy=followed,
        number=now.number,
        versions=versions,
        ledger=ledger,
        rows=ledger.recovering(),
        tokens=tokens,
        engine=Engine(wires, tokens, keep_answers=True),
        templates=templates,
        render=partial(_render, templates),
        report=RecoveryTelemetry(
            recorder,
            metrics,
            alerts,
            clock=clock,
            name=name,
            hash_receiver=hasher(settings.outcomes.hash_key),
        ),
        metrics=metrics,
        recorder=recorder,
        publishers=open_publishers(settings, ledger, wires, metrics.registry, name),
        clock=clock,
        starting=starting,
        outage=Outage(),
        finished=SimpleQueue(),
        stop=stop,
    )


def routes_for(settings: Settings, policy: Policy, lanes: Sequence[Lane]) -> AccountsByLane:
    """Returns the lanes with a ledger and an account. Raises SettingsError for none."""
    kept = [lane for lane in lanes if served(policy.of(lane))]
    found = {lane: routes for lane in kept if (routes := routes_of(settings, policy, lane))}
    if not found:
        raise SettingsError(
            "recovery has nothing to do: no lane of it has both an account and a ledger; add"
            " [accounts.NAME] with provider and endpoint, or name other lanes"
        )
    return found


def _alerts(
    settings: Settings,
    ledger: SqlLedger,
    wires: TransportRouter,
    metrics: RecoveryMetrics,
    clock: Clock,
    name: str,
    stack: ExitStack,
) -> Alerts:
    """Returns the alerts, and starts the watchman that looks for some."""
    alerts = open_desk(Alerts, settings, metrics.registry, ledger, wires, name)
    watchman = open_watchman(settings, metrics.registry, ledger, alerts, clock.monotonic)
    watchman.start()
    stack.callback(watchman.stop)
    return alerts


def _lease(core: _Core, threads: Mapping[str, int], sending: Sending) -> WorkerLease:
    """Registers the recovery and returns its lease."""
    lease_s = core.settings.recovery.lease_s
    info = WorkerInfo(
        id=core.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        lanes=list(threads),
        threads=sum(threads.values()),
        lease_ms=int(lease_s * _MS),
        kind=RECOVERY,
        program=program_version(),
    )
    lease = WorkerLease(
        core.ledger,
        info,
        clock=core.clock,
        interval_s=lease_s * _BEAT_SHARE,
        idle=sending.idle,
    )
    core.starting.until_available("start", lease.register)
    return lease


def _pool(
    core: _Core,
    lease: WorkerLease,
    delays: Delays,
    routes: RetryLane,
    threads: int,
    *,
    lazy: bool = False,
) -> RetryPool:
    return RetryPool(
        routes,
        threads,
        core.engine,
        permit=lease,
        clock=core.clock,
        finished=core.finished,
        reroute=core.ledger.reroute,
        delays=delays,
        lazy=lazy,
    )


def _of_pools(*kinds: Mapping[str, RetryPool]) -> Iterable[Reading]:
    """Yields the size of each lane's pools, and their deliveries, taken together."""
    for lane in kinds[0]:
        pools, labels = [kind[lane] for kind in kinds], {"lane": lane}
        yield Reading(THREADS, labels, sum(pool.threads for pool in pools))
        yield Reading(IN_FLIGHT, labels, sum(pool.in_flight for pool in pools))


def _resending(
    core: _Core,
    context: RetryContext,
    settler: RetrySettler,
    lease: WorkerLease,
    send_limits: SendLimits,
    sending: Sending,
) -> RetryStage:
    def on_sending() -> None:
        if sending.note():
            lease.hurry()  # beats at once, so that the fleet counts this recovery

    return RetryStage(
        context,
        settler,
        owner=core.name,
        lease=lease,
        render=core.render,
        delays=send_limits.receivers.delays,
        on_sending=on_sending,
    )


def _resolving(
    core: _Core, routes: Mapping[str, RetryLane], callers: Mapping[str, RetryPool]
) -> Resolving:
    return Resolving(
        core.rows,
        routes,
        core.engine,
        render=core.render,
        report=core.report,
        stopping=core.stop.is_set,
        paused=lambda lane: callers[lane].paused,
    )


def _retries(
    core: _Core,
    routes: Mapping[str, RetryLane],
    callers: Mapping[str, RetryPool],
    releasing: Mapping[str, RetryPool],
) -> RetryContext:
    release = RetryPace(lambda lane: routes[lane].policy.release_per_s, core.clock)
    return RetryContext(
        ledger=core.ledger,
        rows=core.rows,
        lanes=routes,
        retries=RetryKind(callers, retry_pace(core.settings.recovery.rate_per_s, core.clock)),
        releases=RetryKind(releasing, release),
        report=core.report,
        clock=core.clock,
        outage=core.outage,
    )


def _line_watch(
    core: _Core, routes: Mapping[str, RetryLane], settler: RetrySettler, prompts: Prompts
) -> LineWatch:
    return LineWatch(
        list(routes),
        core.rows,
        core.ledger.held_lines(),
        keeps_order=settler.keeps_order,
        report=core.report,
        prompts=prompts,
        poll_s=core.settings.recovery.poll_s,
        monotonic=core.clock.monotonic,
    )


def _group_lag(core: _Core) -> GroupLagMonitor:
    """Returns the monitor of all lanes, also of those that this recovery does not serve."""
    kafka = core.settings.kafka
    monitor = GroupLagMonitor(
        LANES,
        kafka.topic_prefix,
        kafka.group_id,
        query=GroupLagQuery(kafka).lag,
        hold=lambda duty, lease_ms: core.rows.hold(duty, core.name, lease_ms),
        monotonic=core.clock.monotonic,
    )
    show_readings(core.metrics.registry, monitor.readings)
    return monitor


def _watch(
    core: _Core,
    routes: dict[str, RetryLane],
    callers: Mapping[str, RetryPool],
    releasing: Mapping[str, RetryPool],
    send_limits: SendLimits,
    followers: Sequence[Callable[[Policy], None]],
) -> PolicyWatcher:
    """Returns the watcher for a new policy, which the lanes follow, then the followers."""
    settings = core.settings
    adoption = RecoveryPolicyReload(
        routes,
        callers,
        releasing,
        send_limits,
        routes_for=lambda new: routes_for(settings, new, core.lanes),
        threads=partial(_threads, settings),
    )

    def adopt(new: Policy) -> None:
        require_settings(settings, new)
        adoption(new)
        core.ledger.announced.follow(new.announced)
        for follow in followers:
            follow(new)

    watch = PolicyWatcher(
        core.versions,
        settings.accounts,
        adopt,
        number=core.number,
        beside=core.templates.look,
    )
    show_readings(core.metrics.registry, lambda: policy_readings(watch, lambda: adoption.kept))
    return watch


def _lost(core: _Core, routes: Mapping[str, RetryLane]) -> LostDeliveries:
    surroundings = LostSurroundings(
        core.settings,
        core.policy,
        core.ledger,
        routes,
        core.engine,
        core.recorder,
        core.metrics.registry,
        core.clock,
        core.name,
    )
    return open_lost(
        surroundings,
        hold=lambda duty, lease_ms: core.rows.hold(duty, core.name, lease_ms),
        stopping=core.stop.is_set,
    )


def _resend_jobs(core: _Core) -> ResendJobParts:
    surroundings = JobSurroundings(
        core.settings,
        core.policy,
        core.ledger,
        core.recorder,
        core.metrics.registry,
        core.clock,
    )
    return open_resend_jobs(
        surroundings,
        hold=lambda duty, lease_ms: core.rows.hold(duty, core.name, lease_ms),
        stopping=core.stop.is_set,
    )


def _dead_letters(core: _Core) -> DeadLetterIndexer:
    return DeadLetterIndexer(
        core.settings.kafka,
        core.ledger.letter_index(),
        hold=lambda duty, lease_ms: core.rows.hold(duty, core.name, lease_ms),
        drop=lambda duty: core.rows.drop(duty, core.name),
        monotonic=core.clock.monotonic,
    )


def _control(
    core: _Core,
    pools: Mapping[str, Sequence[RetryPool]],
    prompts: Prompts,
    lease: WorkerLease,
    send_limits: SendLimits,
) -> ControlWatcher:
    """Returns the watcher for a person's orders; each change is shown by a heartbeat at once."""
    controls = core.ledger.controls()

    def hold(accounts: frozenset[str]) -> None:
        send_limits.held.hold(accounts)
        for lane in pools:
            prompts.give(lane)
        lease.hurry()

    return ControlWatcher(
        lambda: controls.orders(core.name, lease.since_ms),
        PausedRetries(pools, prompts.give, lease.hurry),
        core.stop.set,
        monotonic=core.clock.monotonic,
        hold=hold,
    )


def _sums(core: _Core) -> SumWriter:
    """Returns the writer of this recovery's sums; one recovery rolls up those of all processes."""
    upkeep = SumUpkeep(
        core.ledger.sum_rollup(), lambda duty, lease_ms: core.rows.hold(duty, core.name, lease_ms)
    )
    return SumWriter(core.metrics.sums, core.ledger.sums(), core.name, upkeep=upkeep)


def _archiving(core: _Core) -> Archiving | None:
    settings = core.settings
    if not settings.recovery.archive:
        return None
    return Archiving(
        core.ledger.archive(settings.recovery.archive_dir, settings.base),
        core.policy,
        hold=lambda duty, lease_ms: core.rows.hold(duty, core.name, lease_ms),
        stopping=core.stop.is_set,
        monotonic=core.clock.monotonic,
        topic_days=lambda policy: topic_days(settings, topic_keep_days(policy)),
    )


def _health(parts: RecoveryParts) -> Health:
    return Health(
        {"settle": lambda: parts.settler.beat, "schedule": lambda: _scheduled_at(parts)},
        ready=lambda: _not_ready(parts),
        dead=lambda: parts.thread_group.failure[0] if parts.thread_group.failure else None,
        waiting=lambda: parts.outage.on,
        monotonic=parts.clock.monotonic,
    )


def _threads(settings: Settings, policy: LanePolicy) -> int:
    return max(1, int(policy.threads * settings.recovery.share))


def _render(templates: TemplateFollower, delivery: Delivery) -> str:
    """Writes `delivery.rendered` by the templates in force; see `recovery.unknown.resolver.Render`."""
    try:
        delivery.rendered = rendered(templates.current, delivery.notification)
    except TemplateRejected as exc:
        return exc.reason
    return ""


def _scheduled_at(parts: RecoveryParts) -> float:
    """Returns the monotonic time of the last job; now while recovery drains, which calls none."""
    silent_s = 0.0 if parts.stop.is_set() else parts.schedule.silent_s()
    return parts.clock.monotonic() - silent_s


def _not_ready(parts: RecoveryParts) -> str | None:
    if parts.stop.is_set():
        return "draining"
    if (cause := parts.outage.cause) is not None:
        return cause
    if not parts.lease.valid:
        return "the lease lapsed"
    silent_s = parts.schedule.silent_s()
    if silent_s > max(_LATE_LOOKS * parts.poll_s, _LEAST_LATE_S):
        return f"the schedule has called nothing for {silent_s:.0f} s"
    return None
