"""Builds a recovery from its configuration; everything outside is opened here and closed by the stack."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

from backends.settings import Settings, SettingsError
from channels.engine import Engine
from channels.registry import accounts_for, channel_for
from channels.takers import TAKERS
from channels.token_store import open_tokens
from channels.wires import Wires
from dispatcher.adoption import in_force_at_start
from dispatcher.alert_opening import open_desk, open_watchman
from dispatcher.clock import Clock
from dispatcher.crew import Crew
from dispatcher.gates import Outage
from dispatcher.gating import open_gating
from dispatcher.health import Health
from dispatcher.lease import Heart
from dispatcher.quotas import Routes as Plain
from dispatcher.quotas import open_quotas
from idempotency.ledger import WorkerInfo
from idempotency.opening import SqlLedger, open_ledger
from message.delivery import Delivery
from message.vocabulary import Lane
from policy.schema import LanePolicy, Policy
from policy.templates import TemplateError, Templates
from policy.templates_loading import load_for as load_templates
from policy.versions import Versions
from policy.watching import Watch
from recovery.adoption import Adoption, routes_of
from recovery.alerts import Alerts
from recovery.archiving import Archiving
from recovery.calls import Callers, Resend
from recovery.report import Metrics, Report
from recovery.resending import Pace, Resending, served
from recovery.resolving import Resolving
from recovery.service import Parts, Recovery
from tracing import open_recorder
from tracing.metrics import show_drops

_MS: Final = 1_000
_BEAT_SHARE: Final = 1 / 6


class Opened(NamedTuple):
    """A recovery, and what the outside sees of it."""

    recovery: Recovery
    health: Health
    metrics: Metrics


def recovery_name(settings: Settings) -> str:
    """`recovery.id`, or one that nobody else has."""
    own = f"recovery-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    return settings.recovery.id or own


def open_recovery(
    settings: Settings,
    policy: Policy,
    lanes: Sequence[Lane],
    stack: ExitStack,
    stop: threading.Event,
) -> Opened:
    """A recovery of these lanes, registered and not started; waits for the database until `stop`.

    Raises SettingsError, LedgerError.
    """
    outage, clock, metrics = Outage(), Clock(), Metrics()
    routes_for(settings, policy, lanes)
    templates = load_templates(settings, TAKERS)
    outage.stop = threading.Event()
    ledger = _ledger(settings, outage, stack, stop)
    versions = Versions(ledger.database)
    now = outage.persist("start", lambda: in_force_at_start(settings, versions))
    policy = now.policy if now.number else policy
    plain = routes_for(settings, policy, lanes)
    recorder = open_recorder(settings)
    stack.callback(recorder.close)
    wires = Wires()
    stack.callback(wires.close)
    tokens = open_tokens(settings, wires)
    stack.callback(tokens.close)
    engine = Engine(wires, tokens)
    name = recovery_name(settings)
    callers_of = {lane.name: _threads(settings, policy.of(lane)) for lane in plain}
    heart = _heart(settings, ledger, name, callers_of, clock, outage)
    identity = outage.persist("start", ledger.identity)
    quotas = open_quotas(settings, policy, plain, ledger, identity, clock, stack)
    routes = {
        lane.name: routes_of(policy, lane, of_lane, quotas) for lane, of_lane in plain.items()
    }
    gating = open_gating(settings, policy, identity, clock, stack)
    finished: SimpleQueue[Resend | None] = SimpleQueue()
    windows = ledger.alerting()
    alerts = open_desk(Alerts, settings, metrics.registry, windows, wires, name)
    watchman = open_watchman(
        settings, metrics.registry, windows, alerts, clock.monotonic, asks_doubts=True
    )
    watchman.start()
    stack.callback(watchman.stop)
    report = Report(recorder, metrics, alerts, clock=clock, name=name)
    show_drops(recorder, metrics.registry)
    callers = {
        lane: Callers(
            routes[lane],
            threads,
            engine,
            permit=heart,
            clock=clock,
            finished=finished,
            reroute=ledger.reroute,
        )
        for lane, threads in callers_of.items()
    }
    render = partial(_rendered, templates)
    rows = ledger.recovering()
    resending = Resending(
        ledger,
        rows,
        routes,
        callers,
        owner=name,
        lease=heart,
        pace=Pace(settings.recovery.rate_per_s, clock),
        render=render,
        report=report,
        clock=clock,
        outage=outage,
        finished=finished,
        delays=quotas.receivers.delays,
        give_back=gating.give_back,
    )
    adoption = Adoption(
        routes,
        callers,
        quotas,
        routes_for=lambda new: routes_for(settings, new, lanes),
        threads=partial(_threads, settings),
    )
    archiving = _archiving(settings, policy, ledger, name, clock, stop)

    def adopt(new: Policy) -> None:
        adoption(new)
        if archiving is not None:
            archiving.adopt(new)

    watch = Watch(versions, settings.accounts, adopt, number=now.number)
    resolving = Resolving(rows, routes, engine, render=render, report=report, stopping=stop.is_set)
    crew = Crew()
    recovery = Recovery(
        Parts(
            name=name,
            lanes=list(routes),
            rows=rows,
            resending=resending,
            resolving=resolving,
            callers=callers,
            heart=heart,
            upkeep=quotas.upkeep,
            watch=watch,
            outage=outage,
            report=report,
            clock=clock,
            crew=crew,
            finished=finished,
            archiving=archiving,
            poll_s=settings.recovery.poll_s,
            stop=stop,
        )
    )
    health = Health(
        {"settle": lambda: resending.beat},
        ready=lambda: _not_ready(stop, outage, heart),
        dead=lambda: crew.casualty[0] if crew.casualty else None,
        waiting=lambda: outage.on,
        monotonic=clock.monotonic,
    )
    return Opened(recovery, health, metrics)


def routes_for(settings: Settings, policy: Policy, lanes: Sequence[Lane]) -> Plain:
    """The lanes that the ledger answers for and that have an account; raises SettingsError for none."""
    found = {}
    for lane in lanes:
        accounts = accounts_for(lane, settings.accounts, policy.of(lane).account_names)
        if accounts and served(policy.of(lane)):
            found[lane] = {account.name: (account, channel_for(account)) for account in accounts}
    if not found:
        raise SettingsError(
            "recovery has nothing to do: no lane of it has both an account and a ledger; add"
            " [accounts.NAME] with provider and endpoint, or name other lanes"
        )
    return found


def _ledger(
    settings: Settings, outage: Outage, stack: ExitStack, stop: threading.Event
) -> SqlLedger:
    """Waiting for a database that is away ends with `stop`; later, draining has its own time."""
    waiting = Outage()
    waiting.stop = stop
    ledger = waiting.persist("start", lambda: open_ledger(settings))
    stack.callback(ledger.close)
    return ledger


def _heart(
    settings: Settings,
    ledger: SqlLedger,
    name: str,
    threads: Mapping[str, int],
    clock: Clock,
    outage: Outage,
) -> Heart:
    lease_s = settings.recovery.lease_s
    info = WorkerInfo(
        id=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        lanes=list(threads),
        threads=sum(threads.values()),
        lease_ms=int(lease_s * _MS),
    )
    heart = Heart(ledger, info, clock=clock, interval_s=lease_s * _BEAT_SHARE)
    outage.persist("start", heart.register)
    return heart


def _archiving(
    settings: Settings,
    policy: Policy,
    ledger: SqlLedger,
    name: str,
    clock: Clock,
    stop: threading.Event,
) -> Archiving | None:
    if not settings.recovery.archive:
        return None
    rows = ledger.recovering()
    return Archiving(
        ledger.archive(settings.recovery.archive_dir, settings.base),
        policy,
        hold=lambda duty, lease_ms: rows.hold(duty, name, lease_ms),
        stopping=stop.is_set,
        monotonic=clock.monotonic,
    )


def _threads(settings: Settings, policy: LanePolicy) -> int:
    return max(1, int(policy.threads * settings.recovery.share))


def _rendered(templates: Templates, delivery: Delivery) -> bool:
    try:
        delivery.rendered = templates.render(delivery.notification)
    except TemplateError:
        return False
    return True


def _not_ready(stop: threading.Event, outage: Outage, heart: Heart) -> str | None:
    if stop.is_set():
        return "draining"
    if outage.on:
        return "the ledger's database is away"
    return None if heart.valid else "the lease lapsed"
