"""Calls for later, behind one timer of the loop: a timer a request would double the cost of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final

_GRAIN_S: Final = 0.0005
"""The loop's clock goes by milliseconds: half of one makes no difference."""


class DelayQueue:
    """Calls by due time; belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        """Orders calls of equal times: the earlier one goes first."""
        self._set_for = inf

    def at(self, due: float, call: Callable[[], None]) -> None:
        """Calls it when the loop's clock reaches `due`; at once if that is past."""
        if due <= self._loop.time():
            call()
            return
        heappush(self._calls, (due, next(self._numbers), call))
        if due < self._set_for:
            self._set(due)

    def _set(self, due: float) -> None:
        self._set_for = due
        self._loop.call_at(due, self._run, due)

    def _run(self, set_for: float) -> None:
        if set_for != self._set_for:
            return  # a later call set an earlier timer, which replaced this one
        calls, until = self._calls, self._loop.time() + _GRAIN_S
        while calls and calls[0][0] <= until:
            attempt(self._loop, heappop(calls)[2])
        self._set_for = inf
        if calls:
            self._set(calls[0][0])


def attempt(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Calls it. An exception goes to the loop's handler, and holds up no other call."""
    try:
        call()
    except Exception as exc:  # any error of one answer
        loop.call_exception_handler({"message": "an answer could not be given", "exception": exc})
