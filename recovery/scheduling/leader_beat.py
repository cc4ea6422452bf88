"""Celery's beat, once for the same lanes: of their beats the one that holds the duty sends. A paused beat
loses it to another. A doubled task does no harm, should both send for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from celery.beat import Scheduler

LEASE_MS: Final = 10_000
_RENEW_S: Final = LEASE_MS / 1_000 / 4
_ASK_S: Final = 1.0
"""Interval at which a beat without the duty asks for it."""


class LeasedScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler that sends only while `hold` returns True; it keeps nothing on disk."""

    hold: Callable[[int], bool]
    """Takes or renews the duty for some milliseconds; set by `scheduler_for`."""
    _asked_at = float("-inf")
    _held = False

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Sends due tasks if the duty is ours. Returns the seconds until the next tick."""
        if not self._holds():
            return _ASK_S
        wait_s: float = super().tick(*args, **kwargs)
        return min(wait_s, _RENEW_S)

    def _holds(self) -> bool:
        now = time.monotonic()
        if not self._held or now - self._asked_at >= _RENEW_S:
            self._held = self.hold(LEASE_MS)
            self._asked_at = now
        return self._held


def scheduler_for(hold: Callable[[int], bool]) -> type[LeasedScheduler]:
    """Returns a scheduler class for this process; Celery creates the object itself."""
    return type("OurScheduler", (LeasedScheduler,), {"hold": staticmethod(hold)})
