"""Deletes answers to idempotent requests once they have expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from producer.gateway.request_store import RequestStore

log = structlog.get_logger(__name__)
_EVERY_S: Final = 30.0
_JOIN_S: Final = 5.0


class RequestPurge:
    """One thread deletes batch after batch while there are full ones. Many gateways may do so at once."""

    def __init__(
        self, store: RequestStore, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._stop = threading.Event()
        self.beat = monotonic()
        """Monotonic time of the last round; written by `_run`."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="request-purge", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for its last batch; idempotent."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    @property
    def alive(self) -> bool:
        """Whether the thread lives."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._purge()
            self.beat = self._monotonic()

    def _purge(self) -> None:
        try:
            while self._store.purge() and not self._stop.is_set():
                self.beat = self._monotonic()
        except Exception as exc:  # any error of the database: the next round tries again
            log.warning("gateway_requests_not_purged", cause=str(exc))
