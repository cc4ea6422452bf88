"""Prompts: looks at a lane before the next poll, after a head of a line ended.

They have a thread of their own, apart from the scheduler. A lost prompt costs one poll interval.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import structlog

from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)


class Prompts:
    """`give` is thread-safe and never blocks; one thread calls `run`."""

    def __init__(self) -> None:
        self._lanes: SimpleQueue[str | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._given: set[str] = set()  # guarded by _lock: the lanes in the queue

    def give(self, lane: str) -> None:
        """Asks for a look at this lane at once; a second prompt before the look has no effect."""
        with self._lock:
            if lane in self._given:
                return
            self._given.add(lane)
        self._lanes.put(lane)

    def stop(self) -> None:
        """Ends `run`."""
        self._lanes.put(None)

    def run(self, resend: Callable[[str], int | None]) -> None:
        """Looks at prompted lanes until `stop`, in turn; a look that found work is repeated."""
        while (lane := self._lanes.get()) is not None:
            with self._lock:
                self._given.discard(lane)
            try:
                if resend(lane):
                    self.give(lane)
            except LedgerError as exc:
                log.warning("job_failed", job="resend", lane=lane, cause=str(exc))
            except Exception:  # the next look finds the lane again
                log.exception("job_died", job="resend", lane=lane)
