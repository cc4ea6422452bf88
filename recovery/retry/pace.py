"""The pace of retries: how fast one recovery sends a lane's due deliveries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from backends.redis.token_bucket import Ask, LocalBuckets
from sending.runtime.clock import Clock

BITE_S: Final = 0.25
"""A bite: seconds of a lane's rate whose rows are taken together."""
BASE: Final = 50.0
"""Retries a second of one lane without a setting: few enough not to slow down live traffic."""
RISEN: Final = 200.0
"""Highest rate, while more is due than the rate lets go."""
_STEP_S: Final = 0.5
"""Interval between two changes of the rate."""
_FORGOTTEN_S: Final = 10.0
"""Time without a look after which a lane begins at its base again."""


class RetryPace:
    """A lane's rate for retries: a second's worth at once, then evenly, in bites.

    A bite is taken in one transaction; row by row, each would cost a commit.
    """

    def __init__(self, rate: Callable[[str], float], clock: Clock) -> None:
        """`rate`: a lane's deliveries a second; asked each time."""
        self._rate = rate
        self._buckets = LocalBuckets(clock.monotonic)

    def take(self, lane: str, wanted: int) -> int:
        """Returns how many of `wanted` may go now; 0 if fewer than a bite, unless that is all wanted."""
        granted = self._ask(lane, wanted, 0)
        if granted < min(wanted, max(1, int(self._rate(lane) * BITE_S))):
            self._give_back(lane, granted)
            return 0
        return granted

    def used(self, lane: str, granted: int, count: int) -> None:
        """Gives back what was granted beyond the `count` deliveries found."""
        self._give_back(lane, granted - count)

    def _give_back(self, lane: str, unused: int) -> None:
        if unused:
            self._ask(lane, 0, unused)

    def _ask(self, lane: str, wanted: int, back: int) -> int:
        rate = self._rate(lane)
        burst = max(1, int(rate))
        (grant,) = self._buckets.take([Ask(lane, rate, burst, wanted, 0, back)])
        return grant.tokens


class _LaneRate:
    """One lane's rate and the times that it follows, in monotonic seconds."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.changed_at = now
        self.looked_at = now
        self.emptied_at = now
        """Time of the last look that found less than it might have taken."""
        self.limited_at = float("-inf")
        """Time at which the rate last granted less than there was room for."""


class RisingPace(RetryPace):
    """A pace that rises while the rate holds up due deliveries, and sinks when none is left.

    It doubles each _STEP_S in which every look was full and the rate was the limit. It halves each _STEP_S
    in which a look found less than it might have taken. Thread-safe.
    """

    def __init__(self, clock: Clock, base: float = BASE, most: float = RISEN) -> None:
        super().__init__(self.rate_of, clock)
        self._monotonic = clock.monotonic
        self._base = base
        self._most = most
        self._lock = threading.Lock()
        self._lanes: dict[str, _LaneRate] = {}  # guarded by _lock

    def take(self, lane: str, wanted: int) -> int:
        """See `RetryPace.take`."""
        granted = super().take(lane, wanted)
        if granted < wanted:
            with self._lock:
                self._of(lane).limited_at = self._monotonic()
        return granted

    def used(self, lane: str, granted: int, count: int) -> None:
        """See `RetryPace.used`."""
        super().used(lane, granted, count)
        with self._lock:
            self._follow(self._of(lane), emptied=count < granted)

    def _follow(self, one: _LaneRate, *, emptied: bool) -> None:
        now = self._monotonic()
        one.looked_at = now
        if emptied:
            one.emptied_at = now
        if now - one.changed_at < _STEP_S:
            return
        if emptied:
            one.rate, one.changed_at = max(self._base, one.rate / 2), now
        elif now - one.emptied_at >= _STEP_S and now - one.limited_at <= _STEP_S:
            one.rate, one.changed_at = min(self._most, one.rate * 2), now

    def rate_of(self, lane: str) -> float:
        """Returns a lane's deliveries a second now."""
        with self._lock:
            return self._of(lane).rate

    def _of(self, lane: str) -> _LaneRate:
        """Returns the lane's rate; called under the lock."""
        now = self._monotonic()
        one = self._lanes.get(lane)
        if one is None or now - one.looked_at > _FORGOTTEN_S:
            one = self._lanes[lane] = _LaneRate(self._base, now)
        return one


def retry_pace(fixed: float | None, clock: Clock) -> RetryPace:
    """Returns the pace of retries: fixed if the settings name a rate, else rising."""
    return RisingPace(clock) if fixed is None else RetryPace(lambda _: fixed, clock)
