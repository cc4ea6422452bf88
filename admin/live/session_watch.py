"""Sessions of the watchers of live pages: all are asked for together, once a minute."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from anyio import to_thread

from idempotency.ledger import LedgerError

EVERY_S: Final = 60.0
"""Time after which an ended session ends its streams."""


class SessionWatch:
    """Used by the event loop's thread alone. `alive` returns those of the tokens whose session goes on."""

    def __init__(
        self,
        alive: Callable[[Collection[str]], set[str]],
        every_s: float = EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._alive = alive
        self._every_s = every_s
        self._monotonic = monotonic
        self._lock: asyncio.Lock | None = None  # made in the loop that uses it
        self._watched: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._asked_at = monotonic()

    @contextmanager
    def watching(self, token: str) -> Iterator[None]:
        """Keeps a token among those that are asked for."""
        self._watched[token] += 1
        try:
            yield
        finally:
            self._watched[token] -= 1
            if not self._watched[token]:
                del self._watched[token]
                self._ended.discard(token)

    async def goes_on(self, token: str) -> bool:
        """Returns whether the session went on when all were asked for last. With the database away it does:
        pages keep their last state."""
        if self._monotonic() - self._asked_at >= self._every_s:
            self._lock = self._lock or asyncio.Lock()
            async with self._lock:
                if self._monotonic() - self._asked_at >= self._every_s:
                    await self._ask()
        return token not in self._ended

    async def _ask(self) -> None:
        """The others wait meanwhile: they go by the same answer."""
        tokens = set(self._watched)
        try:
            self._ended = tokens - await to_thread.run_sync(self._alive, tokens)
        except LedgerError:
            return
        finally:
            self._asked_at = self._monotonic()
