"""`/healthz`, `/readyz`, `/metrics`, and the stuck detector.

Alive means: no thread died, and every loop went round lately or waits for a database that is away. A
restart would not bring that back. When a loop is stuck, the stacks of all threads go into the log once.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from backends.addresses import address_of
from backends.settings import SettingsError
from backends.stack_dump import thread_stacks

log = structlog.get_logger(__name__)

STUCK_AFTER_S = 60.0
"""A loop that has not gone round for so long is stuck. The longest legitimate wait, the bounded drain of a
revoke, is far shorter."""
_PORTS_TRIED = 100
_JSON = "application/json"


class Health:
    """Answers whether the worker is alive and ready."""

    def __init__(
        self,
        beats: Mapping[str, Callable[[], float]],
        *,
        ready: Callable[[], str | None],
        missing: Callable[[], Sequence[str]] = tuple,
        dead: Callable[[], str | None],
        waiting: Callable[[], bool],
        monotonic: Callable[[], float],
        stuck_after_s: float = STUCK_AFTER_S,
    ) -> None:
        self._beats = beats
        self._ready = ready
        self._missing = missing
        self._dead = dead
        self._waiting = waiting
        self._monotonic = monotonic
        self._stuck_after_s = stuck_after_s
        self._dumped = False

    def alive(self) -> tuple[bool, dict[str, Any]]:
        """Returns whether it is alive, and the page's fields."""
        now = self._monotonic()
        ages = {name: round(now - beat(), 3) for name, beat in self._beats.items()}
        late = [name for name, age in ages.items() if age > self._stuck_after_s]
        stuck = [] if self._waiting() else late
        dead = self._dead()
        if stuck and not self._dumped:
            self._dumped = True
            log.critical("stuck", loops=stuck, stacks=thread_stacks())
        elif not stuck:
            self._dumped = False
        return not stuck and dead is None, {"stuck": stuck, "dead": dead, "loop_age_s": ages}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Returns whether it is ready, and the page's fields; a reason means: send no work here yet."""
        reason = self._ready()
        return reason is None, {"reason": reason, "missing_topics": list(self._missing())}


class HealthServer:
    """A small HTTP server of its own thread; a taken port moves it to the next free one."""

    def __init__(
        self,
        address: str,
        health: Health,
        registry: CollectorRegistry,
        key: str = "worker.health_address",
    ) -> None:
        self._server = _bind(address, _handler(health, registry), key)
        host, port = self._server.server_address[:2]
        self.address = f"{host!s}:{port}"
        if not address.endswith((f":{port}", ":0")):
            log.warning("health_address_taken", wanted=address, using=self.address)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    def start(self) -> None:
        """Starts to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stops to answer; idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _bind(address: str, handler: type[BaseHTTPRequestHandler], key: str) -> ThreadingHTTPServer:
    wanted = address_of(address, key, "127.0.0.1:9464")
    kind = _Server6 if wanted.family is socket.AF_INET6 else ThreadingHTTPServer
    port = wanted.port
    for candidate in range(port, port + _PORTS_TRIED) if port else (0,):
        try:
            server = kind((wanted.host, candidate), handler)
        except (OSError, OverflowError):  # taken, or beyond the last port
            continue
        server.daemon_threads = True
        return server
    raise SettingsError(f"{key}: {address}: no free port from there on; set another address")


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def _handler(health: Health, registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Three pages, read-only."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path == "/healthz":
                self._answer_json(*health.alive())
            elif self.path == "/readyz":
                self._answer_json(*health.ready())
            elif self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            else:
                self._answer(404, "text/plain", b"try /healthz, /readyz or /metrics\n")

        def _answer_json(self, good: bool, body: dict[str, Any]) -> None:
            body = {"status": "ok" if good else "failing", **body}
            self._answer(200 if good else 503, _JSON, json.dumps(body).encode() + b"\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
            """Logs no request."""

    return Handler
