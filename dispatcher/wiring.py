"""Builds a worker from its configuration; dispatcher/process.py runs it."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import structlog

from backends.kafka import clients as kafka
from backends.kafka.topic_reader import log_bounds
from backends.metrics import worker_families as of_worker
from backends.metrics.readings import Reading
from backends.metrics.shared_families import IN_FLIGHT, THREADS
from backends.program import program_version
from backends.settings import Settings, SettingsError
from channels.engine import NonBlockingEngine
from channels.tokens.contract import Tokens
from channels.transports import TransportRouter
from dispatcher.control import PausedLanes, SnapshotSource
from dispatcher.dead_letters.quota import DeadLetterQuota
from dispatcher.dead_letters.writer import PRODUCER, DeadLetterWriter, Poison
from dispatcher.kafka.backpressure import Backpressure
from dispatcher.kafka.commits import Commits
from dispatcher.kafka.group_member import GroupMember
from dispatcher.kafka.missing_topics import MissingTopics
from dispatcher.kafka.removed_records import LogBounds, RemovedRecords
from dispatcher.kafka.source import Downstream, Source
from dispatcher.metrics import Metrics
from dispatcher.pipeline.claims import BestEffortClaims, ClaimStrategy, LedgerClaims
from dispatcher.pipeline.completion import CompletionStage
from dispatcher.pipeline.expand import ExpandStage
from dispatcher.pipeline.gates import SendGates, open_gating
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.settle import CombinedCommit, Settle
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Finished, KafkaRecord
from dispatcher.policy_reload import PolicyReload
from dispatcher.worker import LaneEntry, Worker, WorkerStages
from idempotency.fleet.controls import Controls
from idempotency.ledger import Ledger, LedgerUnavailable, WorkerInfo
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.prefilter import Prefilter
from idempotency.sums.store import SumStore
from message.delivery import Delivery
from message.vocabulary import Lane, dead_letter_topic
from policy.schema import Guarantee, Ordering, Policy
from policy.templates.active import TemplateFollower
from policy.watcher import PolicyWatcher, VersionSource
from sending.accounts.limits import AccountsByLane, SendLimits, open_quotas
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.snapshots import account_snapshots
from sending.alerts.notifier import AlertNotifier
from sending.lane_routes import routes_of
from sending.policy_reload import policy_readings
from sending.runtime.clock import Clock
from sending.runtime.control import ControlWatcher
from sending.runtime.health import Health
from sending.runtime.lease import WorkerLease
from sending.runtime.outage import Outage
from sending.runtime.threads import ThreadGroup
from sending.sum_writer import SumWriter
from sending.template_renderer import rendered
from tracing.events import Recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

log = structlog.get_logger(__name__)

_MS = 1_000
_BEAT_SHARE = 1 / 6
"""Heartbeats per lease, where `worker.heartbeat_s` is not given."""


class OpenedBackends(NamedTuple):
    """The outside systems of a worker, opened and closed by `dispatcher.process`."""

    ledger: Ledger
    announced: AnnouncedLanes
    """The ledger's."""
    prefilter: Prefilter
    recorder: Recorder
    transport: TransportRouter
    tokens: Tokens
    templates: TemplateFollower
    metrics: Metrics
    alerts: AlertNotifier
    versions: VersionSource
    controls: Controls
    sums: SumStore
    number: int
    """Number of the policy version in force at the start; 0: the file's policy."""
    protocol: kafka.GroupProtocol
    stack: ExitStack
    """Closes all that is opened while the worker is built."""


class BuiltWorker(NamedTuple):
    """A worker, with its health, metrics and lane pools."""

    worker: Worker
    health: Health
    metrics: Metrics
    pools: Mapping[str, LanePool]


class _Core(NamedTuple):
    """Objects that several stages share."""

    settings: Settings
    policy: Policy
    lanes: Sequence[Lane]
    parts: OpenedBackends
    name: str
    routes: AccountsByLane
    clock: Clock
    metrics: Metrics
    outage: Outage
    report: WorkerTelemetry
    send_limits: SendLimits
    gates: SendGates
    done: SimpleQueue[Sequence[KafkaRecord | Poison]]


def routes_for(settings: Settings, policy: Policy, lanes: Iterable[Lane]) -> AccountsByLane:
    """Returns the accounts of every lane with their channels. Raises SettingsError for a wrong one, and if
    no lane has an account. A lane without an account keeps its empty entry: its records are dead letters.
    """
    routes = {lane: routes_of(settings, policy, lane) for lane in lanes}
    if not any(routes.values()):
        raise SettingsError(
            "no lane of this worker has an account; add [accounts.NAME] with provider and endpoint"
        )
    return routes


def worker_name(settings: Settings) -> str:
    """Returns `worker.id`, or a unique name."""
    return settings.worker.id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def build(
    settings: Settings,
    policy: Policy,
    lanes: Sequence[Lane],
    parts: OpenedBackends,
    stop: threading.Event,
) -> BuiltWorker:
    """Wires the stages and registers the worker; it drains when `stop` is set. Raises LedgerError,
    SettingsError."""
    name, clock = worker_name(settings), Clock()
    parts.announced.follow(policy.announced)
    routes = routes_for(settings, policy, lanes)
    lease = _lease(settings, policy, routes, parts.ledger, name, clock)
    core = _core(settings, policy, lanes, parts, name, routes, clock)
    entries = _entries(core, lease)
    pools = {pool.lane.name: pool for entry in entries for pool in entry.pools}
    screens = {lane: entry.screen for entry in entries for lane in entry.lanes}
    completion = _completion(core, pools, screens)
    settles = [_settle(core, entry, completion) for entry in entries]
    dead_letters = _dead_letters(core)
    removed = _removed(core)
    source = _source(core, screens, dead_letters, removed)
    adoption = PolicyReload(
        pools,
        core.send_limits,
        core.gates,
        source,
        lambda new: routes_for(settings, new, lanes),
        parts.announced,
    )
    watch = PolicyWatcher(
        parts.versions,
        settings.accounts,
        adoption,
        number=parts.number,
        beside=parts.templates.look,
    )
    stages = WorkerStages(
        source=source,
        entries=entries,
        pools=list(pools.values()),
        settles=settles,
        completion=completion,
        dead_letters=dead_letters,
        topics=_topics(core),
        removed=removed,
        lease=lease,
        outage=core.outage,
        upkeep=core.send_limits.upkeep,
        watch=watch,
        control=_control(core, pools, entries, lease, stop),
        snapshot=_snapshot(core, pools, entries, source, watch),
        sums=SumWriter(core.metrics.sums, parts.sums, name),
        thread_group=ThreadGroup(),
        clock=core.clock,
    )
    worker = Worker(stages, lanes, settings.worker.drain_s, stop)
    _show(core, stages, watch, adoption)
    show_drops(parts.recorder, core.metrics.registry)
    return BuiltWorker(worker, _health(worker, stages, parts.transport), core.metrics, pools)


def _core(
    settings: Settings,
    policy: Policy,
    lanes: Sequence[Lane],
    parts: OpenedBackends,
    name: str,
    routes: AccountsByLane,
    clock: Clock,
) -> _Core:
    identity, metrics = parts.ledger.identity(), parts.metrics
    return _Core(
        settings=settings,
        policy=policy,
        lanes=lanes,
        parts=parts,
        name=name,
        routes=routes,
        clock=clock,
        metrics=metrics,
        outage=Outage(),
        report=WorkerTelemetry(
            parts.recorder,
            metrics,
            clock=clock,
            worker=name,
            alert=parts.alerts.raise_,
            hash_receiver=hasher(settings.outcomes.hash_key),
        ),
        send_limits=open_quotas(
            settings, policy, routes, parts.ledger, identity, clock, parts.stack
        ),
        gates=open_gating(settings, policy, identity, clock, parts.stack),
        done=SimpleQueue(),
    )


def _show(core: _Core, stages: WorkerStages, watch: PolicyWatcher, adoption: PolicyReload) -> None:
    """Let `/metrics` show what the stages count."""
    core.metrics.show(
        lambda: (
            *_readings(stages),
            *policy_readings(watch, lambda: adoption.kept),
            *core.send_limits.readings(),
            *core.gates.readings(),
            *login_readings(core.parts.tokens, core.send_limits.rates),
        )
    )


def _lease(
    settings: Settings,
    policy: Policy,
    routes: AccountsByLane,
    ledger: Ledger,
    name: str,
    clock: Clock,
) -> WorkerLease:
    """Registers the worker, so that it counts in the fleet's size. Returns its lease."""
    worker = settings.worker
    info = WorkerInfo(
        id=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        lanes=[lane.name for lane in routes],
        threads=sum(policy.of(lane).threads for lane, r in routes.items() if r),
        lease_ms=int(worker.lease_s * _MS),
        program=program_version(),
    )
    interval = worker.heartbeat_s or worker.lease_s * _BEAT_SHARE
    lease = WorkerLease(ledger, info, clock=clock, interval_s=interval)
    lease.register()
    return lease


def _control(
    core: _Core,
    pools: Mapping[str, LanePool],
    entries: Sequence[LaneEntry],
    lease: WorkerLease,
    stop: threading.Event,
) -> ControlWatcher:
    """Returns the watcher for a person's orders; each change is shown by a heartbeat at once."""
    return ControlWatcher(
        lambda: core.parts.controls.orders(core.name, lease.since_ms),
        PausedLanes(pools, [entry.intake for entry in entries], lease.hurry),
        stop.set,
        monotonic=core.clock.monotonic,
        hold=_hold(core, entries, lease),
    )


def _hold(
    core: _Core, entries: Sequence[LaneEntry], lease: WorkerLease
) -> Callable[[frozenset[str]], None]:
    """Returns the function that holds paused accounts. It looks at once for what a resumed one may take."""

    def hold(accounts: frozenset[str]) -> None:
        core.send_limits.held.hold(accounts)
        for entry in entries:
            entry.intake.room_made()
        lease.hurry()

    return hold


def _snapshot(
    core: _Core,
    pools: Mapping[str, LanePool],
    entries: Sequence[LaneEntry],
    source: Source,
    watch: PolicyWatcher,
) -> SnapshotSource:
    intakes = {lane.name: entry.intake for entry in entries for lane in entry.lanes}
    return SnapshotSource(
        pools,
        source,
        watch,
        templates=core.parts.templates,
        waiting=lambda lane: intakes[lane].waiting(lane),
        open_breakers=lambda lane: core.send_limits.accounts[lane].open_breakers(),
        accounts=lambda: account_snapshots(core.send_limits, core.parts.tokens),
        monotonic=core.clock.monotonic,
    )


def _pool(core: _Core, lane: Lane, lease: WorkerLease, finished: SimpleQueue[Finished]) -> LanePool:
    return LanePool(
        lane,
        LaneConfig(
            core.policy.version,
            core.policy.of(lane),
            core.routes[lane],
            core.send_limits.accounts[lane.name],
        ),
        NonBlockingEngine(core.parts.transport, core.parts.tokens, keep_answers=True),
        permit=lease,
        clock=core.clock,
        finished=finished,
        reroute=_reroute(core),
        delays=core.send_limits.receivers.delays,
    )


def _reroute(core: _Core) -> Callable[[Sequence[Delivery]], list[bool]]:
    """Returns the function that records another call after a definite non-send. While the ledger is away
    it records none, and the delivery keeps the non-send."""

    def reroute(deliveries: Sequence[Delivery]) -> list[bool]:
        try:
            return core.parts.ledger.reroute(deliveries)
        except LedgerUnavailable:
            return [False] * len(deliveries)

    return reroute


def _entries(core: _Core, lease: WorkerLease) -> list[LaneEntry]:
    """Returns an entry for the lanes with a ledger and one for the `best_effort` lanes: an outage of the
    database holds up only the former. A lane without an account is in none."""
    entries = []
    for best_effort in (False, True):
        lanes = [
            lane
            for lane, routes in core.routes.items()
            if routes and (core.policy.of(lane).guarantee is Guarantee.BEST_EFFORT) is best_effort
        ]
        if lanes:
            entries.append(_entry(core, lanes, best_effort, lease))
    return entries


def _entry(core: _Core, lanes: Sequence[Lane], best_effort: bool, lease: WorkerLease) -> LaneEntry:
    finished: SimpleQueue[Finished] = SimpleQueue()
    pools = {lane.name: _pool(core, lane, lease, finished) for lane in lanes}
    gate: ClaimStrategy
    if best_effort:
        gate = BestEffortClaims(core.parts.prefilter, core.clock)
    else:
        ordered = (n for n, p in pools.items() if p.policy.ordering is Ordering.KEY)
        gate = LedgerClaims(
            core.parts.ledger,
            core.parts.prefilter,
            owner=core.name,
            outage=core.outage,
            clock=core.clock,
            count=core.metrics,
            term=lambda: lease.term,
            lease_holds=lambda: lease.valid,
            judge_again=core.gates.judge_again,
            ordered=frozenset(ordered),
        )
    intake = Intake(
        pools,
        gate,
        core.send_limits.receivers.delays,
        report=core.report,
        clock=core.clock,
        finished=finished,
        gates=core.gates,
    )
    screen = ExpandStage(
        pools,
        gate,
        intake,
        clock=core.clock,
        finished=finished,
        on_dropped=core.done.put,
        render=lambda notification: rendered(core.parts.templates.current, notification),
    )
    intake.on_taken = screen.wanted
    combined_commit = CombinedCommit(intake, gate) if isinstance(gate, LedgerClaims) else None
    return LaneEntry(screen, intake, list(pools.values()), finished, combined_commit)


def _completion(
    core: _Core, pools: Mapping[str, LanePool], screens: Mapping[Lane, ExpandStage]
) -> CompletionStage:
    ordered = frozenset(p.lane for p in pools.values() if p.policy.ordering is Ordering.KEY)

    def on_records(records: list[KafkaRecord]) -> None:
        core.done.put(records)
        if ordered:
            for record in records:
                if record.assignment.lane in ordered:
                    screens[record.assignment.lane].record_ended(record)

    return CompletionStage(
        pools,
        core.parts.prefilter,
        report=core.report,
        clock=core.clock,
        on_records=on_records,
        gates=core.gates,
        hurried=ordered,
    )


def _settle(core: _Core, entry: LaneEntry, completion: CompletionStage) -> Settle:
    return Settle(
        {pool.lane.name: pool for pool in entry.pools},
        core.parts.ledger,
        outage=core.outage,
        report=core.report,
        clock=core.clock,
        finished=entry.finished,
        on_settled=completion.put,
        on_room=entry.intake.room_made,
        combined_commit=entry.combined_commit,
    )


def _dead_letters(core: _Core) -> DeadLetterWriter:
    return DeadLetterWriter(
        kafka.producer(core.settings.kafka, client_id=core.name, changes=PRODUCER),
        dead_letter_topic(core.settings.kafka.topic_prefix),
        on_done=core.done.put,
        on_count=lambda reason: core.metrics.dead_letters.labels(reason).inc(),
        permits=_permits(core),
        recorder=core.parts.recorder,
        clock=core.clock,
        worker=core.name,
    )


def _permits(core: _Core) -> DeadLetterQuota:
    limits = core.settings.dead_letters
    return DeadLetterQuota(limits.burst, limits.rate_per_s, core.clock.monotonic)


def _source(
    core: _Core,
    screens: Mapping[Lane, ExpandStage],
    dead_letters: DeadLetterWriter,
    removed: RemovedRecords,
) -> Source:
    late = _Late()
    consumer = _member(core, late)
    commits = Commits(
        consumer,
        kafka.TopicPartition,
        monotonic=core.clock.monotonic,
        count=lambda result: core.metrics.commits.labels(result).inc(),
    )
    late.commits = commits
    limits = {lane: core.policy.of(lane).max_in_flight for lane in core.lanes}
    return Source(
        consumer,
        commits,
        Backpressure(limits, core.settings.worker.max_in_flight_bytes),
        Downstream(screens, dead_letters, removed, core.done),
        accounts={lane: frozenset(routes) for lane, routes in core.routes.items()},
        topic_prefix=core.settings.kafka.topic_prefix,
        place=kafka.TopicPartition,
        clock=core.clock,
        metrics=core.metrics,
    )


def _member(core: _Core, late: _Late) -> GroupMember:
    settings, protocol = core.settings.kafka, core.parts.protocol

    def opened(assignor: str) -> kafka.Consumer:
        return kafka.consumer(
            settings,
            protocol=protocol,
            client_id=core.name,
            assignor=assignor,
            on_commit=late.acknowledged,
        )

    return GroupMember(
        opened,
        kafka.assignors(settings, protocol),
        wanted=settings.assignor,
        instance_id=settings.group_instance_id,
        epoch=kafka.member_epoch,
        refusal=kafka.group_refusal,
        monotonic=core.clock.monotonic,
    )


def _topics(core: _Core) -> MissingTopics:
    prefix = core.settings.kafka.topic_prefix
    served = [lane.topic(prefix) for lane, routes in core.routes.items() if routes]
    return MissingTopics(served, partial(kafka.existing_topics, core.settings.kafka))


def _removed(core: _Core) -> RemovedRecords:
    client = kafka.admin(core.settings.kafka, quiet=True)
    return RemovedRecords(
        lambda places: {
            place: LogBounds(*bounds) for place, bounds in log_bounds(client, places).items()
        },
        metrics=core.metrics,
        recorder=core.parts.recorder,
        clock=core.clock,
        worker=core.name,
    )


class _Late:
    """The consumer's on_commit: the consumer needs it before `Commits` exists."""

    commits: Commits | None = None

    def acknowledged(self, error: Any, places: Sequence[Any]) -> None:
        if self.commits is not None:
            self.commits.acknowledged(error, places)


def _health(worker: Worker, stages: WorkerStages, transport: TransportRouter) -> Health:
    beats = {
        "answers": lambda: transport.beat,
        "source": lambda: stages.source.beat,
        "aftermath": lambda: stages.completion.beat,
    }
    for number, entry in enumerate(stages.entries):
        beats[f"screen-{number}"] = partial(getattr, entry.screen, "beat")
        beats[f"intake-{number}"] = partial(getattr, entry.intake, "beat")
    for number, settle in enumerate(stages.settles):
        beats[f"settle-{number}"] = partial(getattr, settle, "beat")
    failure = stages.thread_group
    return Health(
        beats,
        ready=lambda: worker.not_ready,
        missing=lambda: stages.topics.missing,
        dead=lambda: failure.failure[0] if failure.failure else None,
        waiting=lambda: stages.outage.on,
        monotonic=stages.clock.monotonic,
    )


def login_readings(tokens: Tokens, rates: RateLimiter) -> Iterable[Reading]:
    """Yields each account whose login the provider refuses, to token requests or to signed calls."""
    for account in sorted({*tokens.refused_logins(), *rates.refused_logins()}):
        yield Reading(of_worker.LOGIN_REFUSED, {"account": account}, 1)


def _readings(stages: WorkerStages) -> Iterable[Reading]:
    for pool in stages.pools:
        yield from _of_pool(pool)
    for served, lag in stages.source.lag.items():
        yield Reading(of_worker.LAG, {"lane": served.name}, lag)
    for served, age in stages.source.oldest_age.items():
        yield Reading(of_worker.OLDEST_UNCOMMITTED_SECONDS, {"lane": served.name}, age)
    for (held, reason), count in stages.dead_letters.held.items():
        labels = {"lane": held.name, "reason": reason}
        yield Reading(of_worker.DEAD_LETTERS_HELD, labels, count)
    yield Reading(of_worker.LEASE_VALID, {}, float(stages.lease.valid))
    yield Reading(of_worker.LEASE_LAPSES, {}, stages.lease.lapses)
    yield Reading(of_worker.SWEPT, {}, stages.lease.swept)
    yield Reading(of_worker.LEDGER_AWAY, {}, float(stages.outage.on))
    abandoned = sum(settle.abandoned for settle in stages.settles)
    yield Reading(of_worker.SETTLE_ABANDONED, {}, abandoned)


def _of_pool(pool: LanePool) -> Iterable[Reading]:
    lane = {"lane": pool.lane.name}
    yield Reading(THREADS, lane, pool.policy.threads)
    yield Reading(of_worker.LANE_CAPACITY, lane, pool.capacity)
    yield Reading(IN_FLIGHT, lane, pool.unsettled)
    yield Reading(of_worker.AT_PROVIDER, lane, pool.busy)
    yield Reading(of_worker.LANE_PAUSED, lane, float(pool.paused))
    yield Reading(of_worker.QUEUED_CALLS, lane, pool.queued)
    yield Reading(of_worker.REPEATED, lane, pool.repeated)
    yield Reading(of_worker.THREADS_REPLACED, lane, pool.replaced)
