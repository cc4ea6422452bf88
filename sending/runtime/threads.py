"""The worker's background threads. One that dies takes the process down, loudly.

A thread that stops working in silence is the worst failure a dispatcher can have: everything looks
healthy and nothing moves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class ThreadGroup:
    """Starts named threads; the first one that ends by an exception is kept as `failure`."""

    def __init__(self) -> None:
        self.failure: tuple[str, BaseException] | None = None
        self.failed = threading.Event()
        """Set once a thread failed."""
        self._threads: list[threading.Thread] = []

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Run `run` in a daemon thread called `name`."""
        thread = threading.Thread(target=self._watch, args=(name, run), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _watch(self, name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as exc:  # whatever it was: nobody else will ever see it
            log.critical("thread_died", thread=name, cause=repr(exc), exc_info=exc)
            self.failure = self.failure or (name, exc)
            self.failed.set()
