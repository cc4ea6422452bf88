"""Background threads of a process. The death of one ends the process.

Without that the process would look healthy and do nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class ThreadGroup:
    """Starts named threads; keeps the first one that ends by an exception as `failure`."""

    def __init__(self, failed: threading.Event | None = None) -> None:
        """`failed`: an event of the caller's, such as its stop; None: one of the group's own."""
        self.failure: tuple[str, BaseException] | None = None
        self.failed = failed or threading.Event()
        """Set once a thread failed."""
        self._threads: list[threading.Thread] = []

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Runs `run` in a daemon thread called `name`."""
        thread = threading.Thread(target=self._watch, args=(name, run), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _watch(self, name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as exc:  # any error: no other code will see it
            log.critical("thread_died", thread=name, cause=repr(exc), exc_info=exc)
            self.failure = self.failure or (name, exc)
            self.failed.set()
