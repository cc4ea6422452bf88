"""ASGI middleware around everything else: the route, the status and the time of each answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final

Scope = MutableMapping[str, Any]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
OnAnswer = Callable[[Scope, int, float], None]
"""Gets the scope of a request, the status of its answer, and the seconds that it took."""

_METHODS: Final = frozenset({"GET", "POST", "HEAD", "OPTIONS"})
_FAULT: Final = 500
"""Status of a request that ends without an answer."""


class RequestTimes:
    """Tells of each answer, and adds `headers` to it. Other connections than those of HTTP pass."""

    def __init__(
        self,
        app: AsgiApp,
        on_answer: OnAnswer,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._on_answer = on_answer
        self._headers = headers
        self._monotonic = monotonic

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = self._monotonic(), _FAULT

        async def noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._on_answer(scope, status, self._monotonic() - begun)


def route_of(scope: Scope) -> str:
    """Returns method and template of the route, as Litestar notes it; strangers' methods and paths make
    no metrics."""
    template = scope.get("path_template", "")
    return f"{scope['method']} {template}" if template and scope["method"] in _METHODS else "none"
