"""The pace that a fleet learns from a provider's refusals: how fast an account may go, and when.

    refused        the account is shut for as long as the provider asked, for the whole fleet at once; a
                   shorter time than one asked before does not replace it
    refused again  without a call that went well in between: shut twice as long, up to `LONGEST_MS`
    open again     from a low rate, doubled each second up to the last that went well, then slowly above it,
                   and after `LINEAR_S` without a refusal quickly
    not refused    for `FORGET_MS`: the pace ends

A refusal of a call that began before the last refusal was counted is not counted again. Redis keeps the
pace on its own clock; `LocalPaces` is the same in one process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from backends.redis.client import RedisBacked, guarded
from backends.settings import RedisSettings

DEFAULT_MS: Final = 500
"""Time for which an account is shut if its provider named none."""
LONGEST_MS: Final = 30_000
"""Longest time for which an account is shut, unless the provider asks for more."""
FORGET_MS: Final = 60_000
LEAST_PER_S: Final = 0.2
"""The lowest rate that refusals lead to."""
START_PER_S: Final = 1.0
"""Highest first rate after a refusal without a call that went well."""
KEPT, LEAST_KEPT, MOST_KEPT = 0.9, 0.5, 0.9
"""Share kept of the rate that went well; least and most share of the rate before."""
GROWTH, LEAST_GROWTH_PER_S = 0.03, 0.02
"""Rise each second: a share of the last good rate, and the least rise."""
LINEAR_S, DOUBLED_S = 10, 2
"""The rate rises by `GROWTH` for `LINEAR_S`, which finds any limit near the last good rate. Then it
doubles each `DOUBLED_S`: without a refusal so far above it, that rate was no limit."""
_MOST_STRIKES: Final = 16
_NUMBERS: Final = (
    DEFAULT_MS,
    LONGEST_MS,
    FORGET_MS,
    LEAST_PER_S,
    START_PER_S,
    KEPT,
    LEAST_KEPT,
    MOST_KEPT,
    GROWTH,
    LEAST_GROWTH_PER_S,
    _MOST_STRIKES,
)
_RATE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local function rate_of(low, good, since, growth, least)
    local t = math.max(0, now - since) / 1000
    if good <= 0 then return low * 2 ^ math.min(t, 40) end
    local climb = math.max(0, math.log(good / low) / math.log(2))
    if t < climb then return low * 2 ^ t end
    local above = t - climb
    local linear = good + math.min(above, LINEAR_S) * math.max(good * growth, least)
    return linear * 2 ^ math.min(math.max(0, above - LINEAR_S) / DOUBLED_S, 40)
end
""".replace("LINEAR_S", str(LINEAR_S)).replace("DOUBLED_S", str(DOUBLED_S))
_REFUSED: Final = (
    _RATE
    + """
local wait, age, seen = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local default, longest, forget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local floor, start, kept = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local least_kept, most_kept = tonumber(ARGV[10]), tonumber(ARGV[11])
local growth, least, most_strikes = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local known = redis.call('HMGET', KEYS[1], 'low', 'good', 'since', 'struck', 'strikes')
local low, good, since = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local struck, strikes = tonumber(known[4]), tonumber(known[5])
if low and now - age < struck then
    since = math.max(since, now + wait)
else
    local before = low and rate_of(low, good, since, growth, least)
    strikes = seen > 0 and 1 or math.min((strikes or 0) + 1, most_strikes)
    local asked = math.max(wait, default)
    local shut = math.min(asked * 2 ^ (strikes - 1), math.max(asked, longest))
    if seen > 0 then
        good = kept * seen
        if before then good = math.min(math.max(good, least_kept * before), most_kept * before) end
        good = math.max(floor, good)
        low = good
    else
        good = good or 0
        low = good > 0 and math.min(good, start) or start
    end
    since, struck = math.max(since or 0, now + shut), now
end
redis.call('HSET', KEYS[1], 'low', string.format('%.6f', low), 'good', string.format('%.6f', good),
    'since', string.format('%.3f', since), 'struck', string.format('%.3f', struck), 'strikes', strikes)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(0, since - now) + forget))
for i = 2, #KEYS do
    local opens = string.format('%.3f', since)
    redis.call('HSET', KEYS[i], 'level', '1', 'at', opens, 'shut', opens)
    redis.call('PEXPIRE', KEYS[i], string.format('%.0f', math.max(0, since - now) + forget))
end
local rate = rate_of(low, good, since, growth, least)
return {string.format('%.6f', rate), math.ceil(math.max(0, since - now))}"""
)
"""KEYS: the pace, then the buckets, which give one token when it opens. ARGV: `Refusal`, `_NUMBERS`."""
_PACES: Final = (
    _RATE
    + """
local answer = {}
for i, key in ipairs(KEYS) do
    local known = redis.call('HMGET', key, 'low', 'good', 'since')
    if known[1] then
        local low, good, since = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
        local rate = rate_of(low, good, since, tonumber(ARGV[1]), tonumber(ARGV[2]))
        answer[2 * i - 1] = string.format('%.6f', rate)
        answer[2 * i] = math.ceil(math.max(0, since - now))
    else
        answer[2 * i - 1], answer[2 * i] = '0', 0
    end
end
return answer"""
)


class Refusal(NamedTuple):
    """One call that was refused for pace alone."""

    name: str
    """The name under which the provider counts."""
    wait_ms: int
    """The wait that the provider asked for; 0: it named none."""
    age_ms: int
    """Time since the call began."""
    seen_per_s: float
    """Deliveries a second that the provider took of the fleet just before."""
    buckets: tuple[str, ...] = ()
    """Buckets of `backends.redis.token_bucket`: shut until the account opens, then with one token."""


class Pace(NamedTuple):
    """The rate of an account now."""

    rate_per_s: float
    """Rate of the whole fleet."""
    shut_ms: int
    """Time from now on for which nothing may go."""


class Paces(Protocol):
    """The fleet's paces. Raises RedisAway; a refusal may have counted then."""

    def refused(self, refusal: Refusal) -> Pace:
        """Counts one refusal. Returns the new pace."""

    def paces(self, names: Sequence[str]) -> list[Pace | None]:
        """Returns the paces in the order asked; None: nothing slows it."""


class RedisPaces(RedisBacked):
    """The fleet's. Thread-safe."""

    def __init__(self, settings: RedisSettings, identity: str) -> None:
        """`identity` is the ledger's. Connects to nothing yet; raises ValueError for a URL that cannot
        be read."""
        self._prefix = f"{settings.prefix}:{identity}"
        super().__init__(settings)
        self._refused = self._client.register_script(_REFUSED)
        self._paces = self._client.register_script(_PACES)

    def refused(self, refusal: Refusal) -> Pace:
        """See `Paces.refused`; one round trip."""
        keys = [self._key(refusal.name), *(f"{self._prefix}:rate:{b}" for b in refusal.buckets)]
        of_call = [refusal.wait_ms, max(0, refusal.age_ms), refusal.seen_per_s]
        rate, shut = guarded(self._refused, keys, [*of_call, *_NUMBERS])
        return Pace(float(rate), int(shut))

    def paces(self, names: Sequence[str]) -> list[Pace | None]:
        """See `Paces.paces`; one round trip."""
        if not names:
            return []
        keys = [self._key(name) for name in names]
        answer: list[Any] = guarded(self._paces, keys, [GROWTH, LEAST_GROWTH_PER_S])
        pairs = zip(answer[::2], answer[1::2], strict=True)
        return [Pace(float(rate), int(shut)) if float(rate) else None for rate, shut in pairs]

    def _key(self, name: str) -> str:
        return f"{self._prefix}:pace:{name}"


class _Known(NamedTuple):
    """The state of one pace; times in milliseconds."""

    low: float
    good: float
    """0: no rate is known to go well."""
    since: float
    """Time at which it opens, or opened."""
    struck: float
    strikes: int


class LocalPaces:
    """The twin in one process's memory. Thread-safe; never raises."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards what follows
        self._known: dict[str, _Known] = {}

    def refused(self, refusal: Refusal) -> Pace:
        with self._lock:
            now = self._monotonic() * 1_000
            known = self._of(refusal.name, now)
            if known is not None and now - refusal.age_ms < known.struck:
                known = known._replace(since=max(known.since, now + refusal.wait_ms))
            else:
                known = _struck(known, refusal, now)
            self._known[refusal.name] = known
            return _pace(known, now)

    def paces(self, names: Sequence[str]) -> list[Pace | None]:
        with self._lock:
            now = self._monotonic() * 1_000
            found = [self._of(name, now) for name in names]
            return [None if known is None else _pace(known, now) for known in found]

    def _of(self, name: str, now: float) -> _Known | None:
        known = self._known.get(name)
        if known is not None and now >= known.since + FORGET_MS:
            del self._known[name]
            return None
        return known


def _struck(known: _Known | None, refusal: Refusal, now: float) -> _Known:
    strikes = 1 if refusal.seen_per_s > 0 or known is None else known.strikes + 1
    strikes = min(strikes, _MOST_STRIKES)
    asked = max(refusal.wait_ms, DEFAULT_MS)
    since = now + min(asked * 2 ** (strikes - 1), max(asked, LONGEST_MS))
    since = max(since, known.since if known is not None else since)
    if refusal.seen_per_s <= 0:
        good = known.good if known is not None else 0.0
        return _Known(min(good or START_PER_S, START_PER_S), good, since, now, strikes)
    good = KEPT * refusal.seen_per_s
    if known is not None:
        before = _rate(known, now)
        good = min(max(good, LEAST_KEPT * before), MOST_KEPT * before)
    good = max(LEAST_PER_S, good)
    return _Known(good, good, since, now, strikes)


def _pace(known: _Known, now: float) -> Pace:
    return Pace(_rate(known, now), math.ceil(max(0.0, known.since - now)))


def _rate(known: _Known, now: float) -> float:
    seconds = max(0.0, now - known.since) / 1_000
    if known.good <= 0:
        return float(known.low * 2 ** min(seconds, 40))
    climb = max(0.0, math.log2(known.good / known.low))
    if seconds < climb:
        return float(known.low * 2**seconds)
    above = seconds - climb
    linear = known.good + min(above, LINEAR_S) * max(known.good * GROWTH, LEAST_GROWTH_PER_S)
    return float(linear * 2 ** min(max(0.0, above - LINEAR_S) / DOUBLED_S, 40))
