"""Handlers that wait for a database run on threads of the pool, whatever else is registered at their path.

Litestar 2.25 registers the handlers of a path anew for each further method of it. It then wraps a handler
with `sync_to_thread=True` twice, and its answer is a coroutine that nobody awaits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from anyio import to_thread
from litestar.handlers import HTTPRouteHandler


def on_threads(handler: HTTPRouteHandler) -> HTTPRouteHandler:
    """Returns the handler, whose function is asynchronous if it asked for a thread. Call it once."""
    if handler.sync_to_thread:
        handler._fn = _threaded(handler.fn)  # noqa: SLF001 - it is read-only otherwise
        handler.sync_to_thread = None
    return handler


def _threaded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def run(*arguments: Any, **named: Any) -> Any:
        return await to_thread.run_sync(partial(function, *arguments, **named))

    return run
