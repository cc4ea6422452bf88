"""The process of `hongyan gateway`: open, serve until SIGTERM, answer requests under way, end.

The end, in this order: `/readyz` says 503; the server takes no request any more and answers those under way
(at most GRACE_S); the publisher flushes; the trace is written out; the databases close.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Final

import structlog

from backends.http_server.connection_limits import HEAD_BYTES, BoundedProtocol
from backends.http_server.serving import HttpServer, bound, http_server, serve_until
from backends.logs import identified
from backends.settings import Settings
from message.structs import describe_structs
from producer.gateway.http_app import build_gateway
from producer.gateway.key_ring import STALE_S
from producer.gateway.submission import Publishes
from producer.gateway.wiring import OpenedGateway, gateway_name, open_gateway
from sending.runtime.health import Health, HealthServer

log = structlog.get_logger(__name__)

GRACE_S: Final = 15
"""Seconds in which requests under way may be answered after the stop."""
LISTEN: Final = "127.0.0.1:9484"


def run_gateway(
    settings: Settings,
    stop: threading.Event,
    listen: str = "",
    publisher: Publishes | None = None,
) -> int:
    """Serves until `stop` is set. Returns the exit code. Raises SettingsError, LedgerError."""
    describe_structs()
    with ExitStack() as stack, identified(worker=gateway_name()):
        wanted = listen or settings.gateway.listen
        listener = stack.enter_context(bound(wanted, "gateway.listen", LISTEN))
        opened = open_gateway(settings, stack, publisher, stop)
        server = _server(opened, settings)
        health = _health(opened, settings, stop)
        health.start()
        stack.callback(health.stop)
        host, port = listener.getsockname()[:2]
        log.info("gateway_started", address=f"{host}:{port}", health=health.address)
        serve_until(stop, server, listener)
    log.info("stopped")
    return 0


def _server(opened: OpenedGateway, settings: Settings) -> HttpServer:
    app = build_gateway(opened.endpoint, access_log=settings.gateway.access_log)
    return http_server(
        app,
        grace_s=GRACE_S,
        lifespan="off",
        proxy_headers=False,
        http=BoundedProtocol,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )


def _health(opened: OpenedGateway, settings: Settings, stop: threading.Event) -> HealthServer:
    """Returns `/healthz`, `/readyz` and `/metrics` at an address of their own."""
    ring, purge = opened.ring, opened.purge

    def ready() -> str | None:
        if stop.is_set():
            return "it stops"
        return "the API keys cannot be read" if ring.age_s > STALE_S else None

    def dead() -> str | None:
        dead = [
            name for name, one in (("api-keys", ring), ("request-purge", purge)) if not one.alive
        ]
        return ", ".join(dead) or None

    health = Health(
        {"api-keys": lambda: ring.beat, "request-purge": lambda: purge.beat},
        ready=ready,
        dead=dead,
        waiting=lambda: ring.age_s > STALE_S,
        monotonic=time.monotonic,
    )
    registry = opened.endpoint.parts.metrics.registry
    return HealthServer(settings.gateway.health_address, health, registry, "gateway.health_address")
