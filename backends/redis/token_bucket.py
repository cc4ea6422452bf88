"""Token buckets that a fleet shares: one script call for many buckets, on Redis's own clock.

A bucket with tokens gives at once up to as many as are wanted. An empty one promises tokens for a later
time: so processes are served in the order in which they asked, and frequent requests gain nothing. An
unused promise is given back.

Redis 7 replicates a script's effects and not its text, so a script may read the clock:
https://redis.io/docs/latest/develop/programmability/eval-intro/#script-replication
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from backends.redis.client import RedisBacked, guarded
from backends.settings import RedisSettings

LONGEST_MS: Final = 60_000
"""Longest promise: the tokens promised to a process that died are lost for no longer."""
_KEPT_AT_MOST_MS: Final = 30 * 86_400_000
_SCRIPT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local longest, kept = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {}
for i, key in ipairs(KEYS) do
    local place = 5 * i - 2
    local rate, burst = ARGV[place] / 1000, tonumber(ARGV[place + 1])
    local want, ahead = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    local back = tonumber(ARGV[place + 4])
    local known = redis.call('HMGET', key, 'level', 'at', 'shut')
    local shut = tonumber(known[3]) or 0
    local level = math.min(burst, math.max(1, rate * 100))
    if known[1] and known[2] then
        level = math.min(burst, known[1] + math.max(0, now - math.max(known[2], shut)) * rate)
    end
    level = math.min(burst, level + back)
    local wait = 0
    if shut > now then
        want = 0
        wait = math.ceil(shut - now)
    elseif level >= 1 then
        want = math.min(want, math.floor(level))
    else
        want = ahead
    end
    if want > level then
        wait = math.ceil((want - level) / rate)
        if wait > longest then
            want = 0
            if ahead > 0 then
                wait = wait - longest
            end
        end
    end
    level = level - want
    redis.call('HSET', key, 'level', string.format('%.6f', level), 'at', string.format('%.3f', now))
    redis.call('PEXPIRE', key, string.format('%.0f', kept))
    answer[2 * i - 1], answer[2 * i] = want, wait
end
return answer"""
"""A new bucket holds a tenth of a second's worth: Redis may have lost the old one, and a full one would be
a second burst. Until `shut` it gives and gains nothing (backends/redis/paces.py)."""


class Ask(NamedTuple):
    """A request to one bucket."""

    name: str
    rate_per_s: float
    burst: int
    want: int
    """Tokens to use at once, as many as there are."""
    ahead: int
    """Tokens to promise if there are none, all or nothing."""
    back: int = 0
    """Tokens taken before and not used; below 0: tokens used that were not taken here."""


class Grant(NamedTuple):
    """A bucket's answer."""

    tokens: int
    wait_ms: int
    """Time until the tokens may be used. Without tokens it is the time until another request may be
    promised some; if `ahead` is 0, until the bucket has no debt."""


class Buckets(Protocol):
    """The fleet's buckets or one process's. Answers come in the order asked."""

    def take(self, asks: Sequence[Ask]) -> list[Grant]:
        """Takes tokens of each bucket. Raises RedisAway; then it is unknown whether they are taken."""


class RedisBuckets(RedisBacked):
    """The fleet's buckets. Thread-safe."""

    def __init__(self, settings: RedisSettings, identity: str) -> None:
        """`identity` is the ledger's. Does not connect yet. Raises ValueError for an invalid URL."""
        self._prefix = f"{settings.prefix}:{identity}:rate:"
        super().__init__(settings)
        self._script = self._client.register_script(_SCRIPT)

    def take(self, asks: Sequence[Ask]) -> list[Grant]:
        """See `Buckets.take`; one round trip."""
        if not asks:
            return []
        keys = [self._prefix + ask.name for ask in asks]
        numbers = [n for ask in asks for n in ask[1:]]
        answer = guarded(self._script, keys, [LONGEST_MS, _KEPT_AT_MOST_MS, *numbers])
        return [Grant(*answer[at : at + 2]) for at in range(0, len(answer), 2)]


class LocalBuckets:
    """The twin in one process's memory. Thread-safe; never raises."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the two below
        self._levels: dict[str, tuple[float, float]] = {}
        """Bucket to its level and the monotonic time of that level."""
        self._emptied_at: float | None = None

    def take(self, asks: Sequence[Ask]) -> list[Grant]:
        with self._lock:
            now = self._monotonic()
            return [self._take(ask, now) for ask in asks]

    def empty(self) -> None:
        """Empties every bucket, also unknown ones: their tokens were taken elsewhere."""
        with self._lock:
            self._levels.clear()
            self._emptied_at = self._monotonic()

    def _take(self, ask: Ask, now: float) -> Grant:
        level = min(ask.burst, self._level(ask, now) + ask.back)
        want, wait_ms = (min(ask.want, math.floor(level)) if level >= 1 else ask.ahead), 0
        if want > level:
            wait_ms = math.ceil((want - level) / ask.rate_per_s * 1_000)
            if wait_ms > LONGEST_MS:
                want = 0
                if ask.ahead:
                    wait_ms -= LONGEST_MS
        self._levels[ask.name] = level - want, now
        return Grant(want, wait_ms)

    def _level(self, ask: Ask, now: float) -> float:
        if ask.name in self._levels:
            level, since = self._levels[ask.name]
        elif self._emptied_at is not None:
            level, since = 0.0, self._emptied_at
        else:
            return ask.burst
        return level + max(0.0, now - since) * ask.rate_per_s
