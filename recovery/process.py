"""Recovery's process: opens the backends, schedules, drains on SIGTERM, returns an exit code."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, Protocol

import structlog
from msgspec.structs import replace

from backends.addresses import address_of
from backends.logs import identified
from backends.settings import Settings
from idempotency.ledger import LedgerUnavailable
from message.vocabulary import Lane, lanes_matching
from policy.loading import load_for
from recovery.scheduling.loop import Loop
from recovery.service import Recovery
from recovery.wiring import OpenedRecovery, open_recovery, recovery_name
from sending.runtime.exit_codes import EXIT_DONE, EXIT_FAILED
from sending.runtime.health import HealthServer

log = structlog.get_logger(__name__)
_WATCH_S: Final = 0.2
"""Interval at which `stop` is checked."""
_JOBS_END_S: Final = 5.0
"""Longest wait for jobs under way, after the drain."""


class Scheduling(Protocol):
    """Calls the jobs, in threads of the recovery's group."""

    def start(self, recovery: Recovery) -> None:
        """Begins to call them."""
        ...

    def stop(self) -> None:
        """Calls no more; waits for nothing."""
        ...

    def join(self, timeout_s: float) -> None:
        """Waits until the jobs under way have ended, or the time is over."""
        ...


class Embedded:
    """The built-in loop."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, recovery: Recovery) -> None:
        """See `Scheduling.start`."""
        loop = Loop(recovery, poll_s=recovery.poll_s, stop=recovery.stopping)
        self._thread = recovery.thread_group.start("loop", loop.run)

    def stop(self) -> None:
        """The loop watches `Recovery.stopping`."""

    def join(self, timeout_s: float) -> None:
        """See `Scheduling.join`."""
        if self._thread is not None:
            self._thread.join(timeout_s)


def run_recovery(
    settings: Settings,
    stop: threading.Event,
    patterns: Sequence[str] | None = None,
    *,
    embedded: bool = False,
) -> int:
    """Recovers the lanes until `stop` is set. Returns the process's exit code. Without a Redis, or with
    `embedded`, the built-in loop schedules, else Celery.

    Raises SettingsError, PolicyError, TemplateFileError, LedgerError if it cannot start.
    """
    lanes = lanes_matching(patterns or settings.recovery.lanes)
    policy = load_for(settings)
    address_of(settings.recovery.health_address, "recovery.health_address", "127.0.0.1:9466")
    settings = _named(settings)
    with ExitStack() as stack, identified(worker=settings.recovery.id):
        scheduling = _scheduling(settings, lanes, embedded=embedded)
        try:
            opened = open_recovery(settings, policy, lanes, stack, stop)
        except LedgerUnavailable:
            if not stop.is_set():
                raise
            log.info("stopped_before_start")
            return EXIT_DONE
        server = HealthServer(
            settings.recovery.health_address,
            opened.health,
            opened.metrics.registry,
            "recovery.health_address",
        )
        server.start()
        stack.callback(server.stop)
        log.info("recovery_started", health=server.address, scheduler=type(scheduling).__name__)
        return _run(opened, scheduling, stop, settings.recovery.drain_s)


def _named(settings: Settings) -> Settings:
    """Returns the settings with a name for the recovery, which its log has from the first event on."""
    return replace(settings, recovery=replace(settings.recovery, id=recovery_name(settings)))


def _run(
    opened: OpenedRecovery, scheduling: Scheduling, stop: threading.Event, drain_s: float
) -> int:
    recovery, thread_group = opened.recovery, opened.recovery.thread_group
    recovery.start()
    scheduling.start(recovery)
    while not stop.is_set() and not thread_group.failed.wait(_WATCH_S):
        pass
    stop.set()
    scheduling.stop()
    recovery.drain(drain_s)
    scheduling.join(_JOBS_END_S)
    if thread_group.failure is not None:
        name, cause = thread_group.failure
        log.critical("recovery_failed", thread=name, cause=repr(cause))
        return EXIT_FAILED
    return EXIT_DONE


def _scheduling(settings: Settings, lanes: Sequence[Lane], *, embedded: bool) -> Scheduling:
    if embedded or not settings.redis.url:
        return Embedded()
    # Imported here, so that the embedded loop needs no Celery.
    from recovery.scheduling.celery_worker import Celery

    made: Any = Celery(settings, [lane.name for lane in lanes])
    scheduling: Scheduling = made
    return scheduling
