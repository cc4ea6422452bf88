"""Looks at a lane before the next poll: a head ended, so the next of its line is due.

A thread of recovery's own does it, whichever scheduler calls the jobs. A lost prompt costs a poll, no more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import structlog

from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)


class Prompts:
    """`give` is safe from any thread and never blocks; `run` is one thread's."""

    def __init__(self) -> None:
        self._lanes: SimpleQueue[str | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._given: set[str] = set()  # guarded by _lock: what stands in the queue

    def give(self, lane: str) -> None:
        """Look at this lane at once; what is asked twice before the look is done once."""
        with self._lock:
            if lane in self._given:
                return
            self._given.add(lane)
        self._lanes.put(lane)

    def stop(self) -> None:
        """End `run`."""
        self._lanes.put(None)

    def run(self, resend: Callable[[str], int | None]) -> None:
        """Until `stop`. While a look finds something it is repeated, lane by lane in turn."""
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
