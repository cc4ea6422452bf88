"""One reader for all watchers of a page: its thread asks the database, and every watcher shares the value.

The thread asks only while somebody watched lately, so that a console without watchers costs nothing. A
failure keeps the last value and says since when it is stale, and why.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)

REST_AFTER_S: Final = 30.0
"""Time without a watcher after which the thread rests."""
FIRST_VALUE_S: Final = 3.0
"""Longest wait of a page for the first value."""
_MOST_TEXTS: Final = 64


class BoardTexts:
    """Texts that were written of one value, each for all who see the same of it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[Hashable, str] = {}  # under the lock

    def of(self, seen: Hashable, write: Callable[[], str]) -> str:
        """Returns the text for those who see this; `write` makes it once."""
        with self._lock:
            text = self._written.get(seen)
            if text is None:
                if len(self._written) >= _MOST_TEXTS:
                    self._written.clear()
                text = self._written[seen] = write()
            return text


@dataclass(frozen=True, slots=True)
class BoardValue:
    """The value of a board, and its age."""

    value: Any = None
    """None before the first value."""
    at_ms: int = 0
    """Time of the value, epoch milliseconds."""
    stale_since_ms: int = 0
    """Time of the first failure since the value; 0: the value is fresh."""
    reason: str = ""
    version: int = 0
    """Rises with each value and failure."""
    texts: BoardTexts = field(default_factory=BoardTexts, compare=False, repr=False)


class LiveBoard:
    """A value that is read again and again. `read` is called by one thread at a time."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Any],
        every_s: float,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.name = name
        self.reads = 0  # `_look` writes it
        self._read = read
        self._every_s = every_s
        self._wall_ms = wall_ms
        self._lock = threading.Condition()
        self._known = BoardValue()  # `_look` writes it, under the lock
        self._wanted_at = float("-inf")  # `wanted` writes it, monotonic
        self._running = False  # under the lock
        self._stopped = False  # `stop` writes it
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = (
            set()
        )  # under the lock

    def now(self, wait_s: float = FIRST_VALUE_S) -> BoardValue:
        """Returns the value that is known. Waits for the first one, and for one after a rest."""
        rested = self._want()
        with self._lock:
            version = self._known.version if rested else 0
            self._lock.wait_for(lambda: self._known.version > version or self._stopped, wait_s)
            return self._known

    async def after(self, version: int, wait_s: float) -> BoardValue | None:
        """Returns a value newer than `version` once there is one; None after `wait_s`."""
        self._want()
        watcher = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._known.version > version:
                return self._known
            self._waiting.add(watcher)
        try:
            await asyncio.wait_for(watcher[1].wait(), wait_s)
        except TimeoutError:
            return None
        finally:
            with self._lock:
                self._waiting.discard(watcher)
        return self._known if self._known.version > version else None

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Ends the thread, and wakes all watchers; idempotent."""
        with self._lock:
            self._stopped = True
            self._tell()

    def _want(self) -> bool:
        """Notes a watcher, and starts the thread if it rests. Returns whether it did rest."""
        with self._lock:
            self._wanted_at = time.monotonic()
            if self._running or self._stopped:
                return False
            self._running = True
            threading.Thread(target=self._run, name=f"board-{self.name}", daemon=True).start()
            return True

    def _run(self) -> None:
        while self._look():
            with self._lock:
                self._lock.wait_for(lambda: self._stopped, self._every_s)

    def _look(self) -> bool:
        """Reads once. Returns whether to go on."""
        known = self._attempt()
        with self._lock:
            self.reads += 1
            version = self._known.version + 1
            self._known = replace(known, version=version, texts=BoardTexts())
            self._tell()
            idle = time.monotonic() - self._wanted_at > max(REST_AFTER_S, 2 * self._every_s)
            self._running = not (idle or self._stopped)
            return self._running

    def _attempt(self) -> BoardValue:
        try:
            return BoardValue(self._read(), self._wall_ms())
        except LedgerError as exc:
            reason = str(exc)
        except Exception as exc:
            log.error("board_failed", board=self.name, exc_info=exc)
            reason = type(exc).__name__
        since = self._known.stale_since_ms or self._wall_ms()
        return replace(self._known, stale_since_ms=since, reason=reason)

    def _tell(self) -> None:
        self._lock.notify_all()
        for loop, event in self._waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop is closed
                pass
