"""Skips a failed Redis for a while: an outage costs one time limit a second, not one a call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from backends.redis.client import RedisAway

PAUSE_S: Final = 1.0
"""Pause between two calls to a Redis that is away."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class OutageGuard:
    """Thread-safe; logs the beginning and the end of an outage, once each."""

    def __init__(
        self, who: str, effect: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`who` names the caller, `effect` an outage's effect on it; both for the log."""
        self.errors = 0
        """Calls that Redis did not answer."""
        self.skipped = 0
        """Calls skipped during an outage."""
        self._who = who
        self._effect = effect
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the counters and the two below
        self._again_at = 0.0
        self._away = False

    @property
    def away(self) -> bool:
        """Whether Redis failed last time."""
        return self._away

    def ask(self, call: Callable[[], T]) -> T | None:
        """Returns the answer; None if Redis gave none or is skipped."""
        if not self._may_ask():
            return None
        try:
            answer = call()
        except RedisAway as exc:
            self._failed(exc)
            return None
        if self._away:
            self._back()
        return answer

    def _may_ask(self) -> bool:
        if not self._away:
            return True
        with self._lock:
            now = self._monotonic()
            if now < self._again_at:
                self.skipped += 1
                return False
            self._again_at = now + PAUSE_S  # one thread asks; the others skip until it knows
            return True

    def _failed(self, exc: RedisAway) -> None:
        with self._lock:
            self.errors += 1
            self._again_at = self._monotonic() + PAUSE_S
            new, self._away = not self._away, True
        if new:
            _log.warning(f"{self._who}.away", error=str(exc), effect=self._effect)

    def _back(self) -> None:
        with self._lock:
            was, self._away = self._away, False
        if was:
            _log.info(f"{self._who}.back", errors=self.errors, skipped=self.skipped)
