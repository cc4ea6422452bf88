"""The process of `hongyan console`: open, serve until SIGTERM, answer requests under way, end.

The end, in this order: the server takes no request any more; live streams end, since their boards stop;
requests under way are answered (at most GRACE_S); the databases are closed.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import structlog

from admin.app import create_app
from admin.metrics import ConsoleMetrics, timed
from admin.parts import ConsoleParts, open_parts
from backends.http_server.request_times import RequestTimes
from backends.http_server.serving import HttpServer, bound, http_server, serve_until
from backends.logs import identified
from backends.settings import Settings
from sending.runtime.health import Health, HealthServer

log = structlog.get_logger(__name__)

GRACE_S: Final = 10
"""Seconds in which requests under way may be answered after the stop."""
LISTEN: Final = "127.0.0.1:9480"
_CONNECTIONS: Final = 1_000
"""More at once are refused with 503."""


def run_console(
    settings: Settings,
    stop: threading.Event,
    listen: str = "",
    started: Callable[[str], None] = lambda _address: None,
) -> int:
    """Serves until `stop` is set; calls `started` with the address once it takes connections. Returns the
    exit code. Raises SettingsError, LedgerError."""
    name = f"console-{socket.gethostname()}-{os.getpid()}"
    with ExitStack() as stack, identified(worker=name):
        wanted = listen or settings.console.listen
        listener = stack.enter_context(bound(wanted, "console.listen", LISTEN))
        parts = open_parts(settings, stack)
        app = create_app(parts)
        metrics = ConsoleMetrics()
        server = _server(timed(app, metrics), settings)
        health = _health(settings, stop, metrics)
        health.start()
        stack.callback(health.stop)
        host, port = listener.getsockname()[:2]
        log.info("console_started", address=f"{host}:{port}", health=health.address)
        started(f"{host}:{port}")
        serve_until(stop, server, listener, lambda: _end_streams(app.state.parts))
    log.info("stopped")
    return 0


def _server(app: RequestTimes, settings: Settings) -> HttpServer:
    proxies = settings.console.proxies
    return http_server(
        app,
        grace_s=GRACE_S,
        lifespan="on",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        limit_concurrency=_CONNECTIONS,
    )


def _health(settings: Settings, stop: threading.Event, metrics: ConsoleMetrics) -> HealthServer:
    """Returns `/healthz`, `/readyz` and `/metrics` at an address of their own."""
    health = Health(
        {},
        ready=lambda: "it stops" if stop.is_set() else None,
        dead=lambda: None,
        waiting=lambda: False,
        monotonic=time.monotonic,
    )
    return HealthServer(
        settings.console.health_address, health, metrics.registry, "console.health_address"
    )


def _end_streams(parts: ConsoleParts) -> None:
    """Stops the boards: a stream would hold the server to its grace."""
    for board in parts.boards.values():
        board.stop()
