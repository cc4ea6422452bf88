"""The process of `hongyan console`: open, serve until SIGTERM, answer requests under way, end.

The end, in this order: the server takes no request any more; live streams end, since their boards stop;
requests under way are answered (at most GRACE_S); the databases are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import structlog
import uvicorn
from litestar.types import ASGIApp

from admin.app import create_app
from admin.metrics import ConsoleMetrics, RequestTimes
from admin.parts import ConsoleParts, open_parts
from backends.addresses import address_of, listening
from backends.logs import identified
from backends.settings import Settings, SettingsError
from sending.runtime.health import Health, HealthServer

log = structlog.get_logger(__name__)

GRACE_S: Final = 10
"""Seconds in which requests under way may be answered after the stop."""
_CONNECTIONS: Final = 1_000
"""More at once are refused with 503."""


class _Server(uvicorn.Server):
    """Leaves signals to `stop`: uvicorn would raise them again, and they would end the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
        listener = stack.enter_context(_bound(listen or settings.console.listen))
        parts = open_parts(settings, stack)
        app = create_app(parts)
        metrics = ConsoleMetrics()
        server = _server(RequestTimes(app, metrics), settings)
        health = _health(settings, stop, metrics)
        health.start()
        stack.callback(health.stop)
        host, port = listener.getsockname()[:2]
        log.info("console_started", address=f"{host}:{port}", health=health.address)
        started(f"{host}:{port}")
        _end_on(stop, server, app.state.parts)
        asyncio.run(server.serve(sockets=[listener]))
    log.info("stopped")
    return 0


def _server(app: ASGIApp, settings: Settings) -> _Server:
    proxies = settings.console.proxies
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=proxies or None,
            log_level="error",
            ws="none",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_S,
        )
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


def _end_on(stop: threading.Event, server: _Server, parts: ConsoleParts) -> None:
    """Ends the boards and then the server after `stop`: a stream would hold the server to its grace."""

    def wait() -> None:
        stop.wait()
        for board in parts.boards.values():
            board.stop()
        server.should_exit = True

    threading.Thread(target=wait, name="stop", daemon=True).start()


def _bound(address: str) -> socket.socket:
    wanted = address_of(address, "console.listen", "127.0.0.1:9480")
    try:
        return listening(wanted)
    except OSError as exc:
        raise SettingsError(f"console.listen: {address}: {exc.strerror or exc}") from exc
