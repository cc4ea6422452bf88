"""How lately a schedule called a job in this process, and what last went wrong with it; and how lately this
process sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

IDLE_AFTER_S: Final = 30.0
"""A recovery that took nothing to send for so long is idle: it has no share of the accounts' rates."""


class Activity:
    """Every method is any thread's. Times are monotonic seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the three below
        self._running = 0
        self._last_at = monotonic()
        self._trouble = ""

    @contextmanager
    def job(self) -> Iterator[None]:
        """Around a job that the schedule called."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._last_at = self._monotonic()

    def silent_s(self) -> float:
        """Seconds since the last job ended here; 0 while one runs."""
        with self._lock:
            return 0.0 if self._running else self._monotonic() - self._last_at

    def note(self, trouble: str) -> None:
        """Keep what is wrong with the schedule."""
        with self._lock:
            self._trouble = trouble

    def take_trouble(self) -> str:
        """Returns the latest trouble and forgets it; empty if there was none."""
        with self._lock:
            trouble, self._trouble = self._trouble, ""
        return trouble


class Sending:
    """Whether this recovery sends. Every method is any thread's."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last_at = float("-inf")  # written by those who take rows; any of them may come last

    def note(self) -> bool:
        """Rows were taken to be sent. Returns whether it was idle until now."""
        was_idle = self.idle()
        self._last_at = self._monotonic()
        return was_idle

    def idle(self) -> bool:
        """Whether nothing was taken for half a minute."""
        return self._monotonic() - self._last_at > IDLE_AFTER_S
