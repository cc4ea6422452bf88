"""Metrics of the console on `/metrics`: its requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry

from backends.metrics import console_families as of_console
from backends.metrics.families import CONSOLE
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process

_METHODS: Final = frozenset({"GET", "POST", "HEAD", "OPTIONS"})
_LIVE: Final = "/live/"
"""Prefix of live streams, which last as long as their page is open."""


class ConsoleMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, CONSOLE)
        self._requests = counter_of(of_console.REQUESTS, self.registry)
        self._took = histogram_of(of_console.TOOK, self.registry)

    def answered(self, route: str, status: int, took_s: float | None) -> None:
        """Counts one answer; without `took_s` its time says nothing."""
        self._requests.labels(route, str(status)).inc()
        if took_s is not None:
            self._took.labels(route).observe(took_s)


class RequestTimes:
    """ASGI middleware around everything else: counts and times the answers."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ConsoleMetrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        begun, status = self._monotonic(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            streams = scope["path"].startswith(_LIVE)
            took_s = None if streams else self._monotonic() - begun
            self._metrics.answered(_route_of(scope), status, took_s)


def _route_of(scope: HTTPScope) -> str:
    """Returns method and template of the route; strangers' methods and paths make no metrics."""
    template = scope.get("path_template", "")
    return f"{scope['method']} {template}" if template and scope["method"] in _METHODS else "none"
