"""How lately a schedule called a job in this process, and what last went wrong with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
