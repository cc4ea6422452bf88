"""The process of `hongyan lookback`: opens, runs its loops until SIGTERM, drains, returns an exit code.

The end, in this order: the consumer takes its last batch and leaves the group; checks under way end;
messages under way are acknowledged and marked, for `lookback.drain_s` at most. The rest keeps its
lease, and another process takes it over.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Final

import structlog

from backends.addresses import address_of
from backends.logs import identified
from backends.settings import Settings
from idempotency.ledger import LedgerUnavailable
from lookback.wiring import LookbackLoops, OpenedLookback, lookback_name, open_lookback
from message.structs import describe_structs
from sending.runtime.exit_codes import EXIT_DONE, EXIT_FAILED
from sending.runtime.health import HealthServer

log = structlog.get_logger(__name__)
_WATCH_S: Final = 0.2


def run_lookback(settings: Settings, stop: threading.Event) -> int:
    """Serves until `stop` is set. Returns the exit code. Raises SettingsError, LedgerError."""
    key, name = "lookback.health_address", lookback_name()
    address_of(settings.lookback.health_address, key, "127.0.0.1:9468")
    describe_structs()
    with ExitStack() as stack, identified(worker=name):
        try:
            opened = open_lookback(settings, name, stack, stop)
        except LedgerUnavailable:
            if not stop.is_set():
                raise
            log.info("stopped_before_start")
            return EXIT_DONE
        address = settings.lookback.health_address
        server = HealthServer(address, opened.health, opened.metrics.registry, key)
        server.start()
        stack.callback(server.stop)
        log.info(
            "lookback_started",
            health=server.address,
            topic=settings.lookback.topic,
            biz_types=sorted(settings.lookback.biz_types),
        )
        return run_loops(opened, stop, settings.lookback.drain_s)


def run_loops(opened: OpenedLookback, stop: threading.Event, drain_s: float) -> int:
    """Runs the loops until `stop`, or until one of them dies. Returns the exit code."""
    loops = opened.loops
    running = {name: opened.threads.start(name, loop.run) for name, loop in loops._asdict().items()}
    while not stop.is_set() and not opened.threads.failed.wait(_WATCH_S):
        pass
    stop.set()
    _drain(loops, running, time.monotonic() + drain_s)
    if opened.threads.failure is not None:
        name, cause = opened.threads.failure
        log.critical("lookback_failed", thread=name, cause=repr(cause))
        return EXIT_FAILED
    log.info("stopped")
    return EXIT_DONE


def _drain(loops: LookbackLoops, running: dict[str, threading.Thread], deadline: float) -> None:
    """Ends the loops one after the other: each may still give work to the next."""
    for name, loop in loops._asdict().items():
        loop.stop()
        running[name].join(max(0.1, deadline - time.monotonic()))
        if running[name].is_alive():
            log.warning("loop_not_ended", loop=name)
