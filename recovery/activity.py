"""Activity of this process: the schedule's last job and last trouble, and the last sending."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

IDLE_AFTER_S: Final = 30.0
"""An idle recovery has taken no rows for so long; it has no share of the accounts' rates."""


class Activity:
    """Jobs and troubles of the schedule. Thread-safe. Times are monotonic seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the three below
        self._running = 0
        self._last_at = monotonic()
        self._trouble = ""

    @contextmanager
    def job(self) -> Iterator[None]:
        """Encloses a job that the schedule called. Its end forgets the trouble: the schedule works."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._last_at = self._monotonic()
                self._trouble = ""

    def silent_s(self) -> float:
        """Returns the seconds since the last job ended; 0 while one runs."""
        with self._lock:
            return 0.0 if self._running else self._monotonic() - self._last_at

    def note(self, trouble: str) -> None:
        """Keeps the schedule's latest trouble."""
        with self._lock:
            self._trouble = trouble

    def take_trouble(self) -> str:
        """Returns the latest trouble and forgets it; empty if there was none."""
        with self._lock:
            trouble, self._trouble = self._trouble, ""
        return trouble


class Sending:
    """Whether this recovery sends. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last_at = float("-inf")  # written by `note`, from several threads in any order

    def note(self) -> bool:
        """Notes that rows were taken. Returns whether it was idle until now."""
        was_idle = self.idle()
        self._last_at = self._monotonic()
        return was_idle

    def idle(self) -> bool:
        """Returns whether nothing was taken for IDLE_AFTER_S."""
        return self._monotonic() - self._last_at > IDLE_AFTER_S
