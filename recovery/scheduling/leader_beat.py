"""The schedule's clock, once in the fleet: any number of beats may run, and the one that holds the duty
sends. A beat that is paused loses it to another; were both to send for a moment, a doubled task does
no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from celery.beat import Scheduler

DUTY: Final = "beat"
LEASE_MS: Final = 10_000
_RENEW_S: Final = LEASE_MS / 1_000 / 4
_ASK_S: Final = 1.0
"""Between two tries of one that has not got the duty."""


class LeasedScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler that sends only while `hold` says so; it keeps nothing on disk."""

    hold: Callable[[str, int], bool]
    """`Recovery.hold`; given by a subclass made for the process."""
    _asked_at = float("-inf")
    _held = False

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, if the duty is ours; seconds until the next tick."""
        if not self._holds():
            return _ASK_S
        wait_s: float = super().tick(*args, **kwargs)
        return min(wait_s, _RENEW_S)

    def _holds(self) -> bool:
        now = time.monotonic()
        if not self._held or now - self._asked_at >= _RENEW_S:
            self._held = self.hold(DUTY, LEASE_MS)
            self._asked_at = now
        return self._held


def scheduler_for(hold: Callable[[str, int], bool]) -> type[LeasedScheduler]:
    """A scheduler class for this process; Celery makes the object itself."""
    return type("OurScheduler", (LeasedScheduler,), {"hold": staticmethod(hold)})
