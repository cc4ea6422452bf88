"""Access tokens kept for the whole fleet: one process at a time asks the provider, under a lease.

    take ──▶ Kept     a token that the asker can use
             Leased   nobody else asks until the lease ends: ask the provider, then `put` or `give_up`
             Busy     another process is asking: come back

A lease is bounded, and its fence is random: a process that slept past its lease puts nothing. Times are
milliseconds left or gone by the store's own clock, so that no two machines' clocks are compared. Tokens
come sealed. On Redis in this module, in SQL in `backends.sql.token_cache`.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple, Protocol

from backends.redis.client import RedisAway, RedisBacked, guarded
from backends.settings import RedisSettings

_TAKE: Final = """
local kept = redis.call('HMGET', KEYS[1], 'sealed', 'digest', 'fetched_at')
local left = redis.call('PTTL', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if kept[1] and left > 0 then
    local age = math.max(0, now - tonumber(kept[3]))
    if kept[2] ~= ARGV[1] or age < tonumber(ARGV[2]) then
        return {'kept', kept[1], kept[2], left, age}
    end
end
if redis.call('SET', KEYS[2], ARGV[3], 'NX', 'PX', ARGV[4]) then
    return {'leased'}
end
return {'busy', redis.call('PTTL', KEYS[2])}"""
_PUT: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'sealed', ARGV[2], 'digest', ARGV[3],
           'fetched_at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('DEL', KEYS[2])
return 1"""
_GIVE_UP: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1"""


class CacheAway(Exception):
    """The store cannot be reached or does not answer; nothing is known of what it did."""


class StoredToken(NamedTuple):
    """A token of the fleet."""

    sealed: bytes
    digest: str
    left_ms: int
    """Until it expires."""
    age_ms: int
    """Since a process was given it."""


class Leased(NamedTuple):
    """The asker alone may ask the provider now."""

    fence: str


class Busy(NamedTuple):
    """Another process is asking the provider."""

    left_ms: int
    """Until its lease ends, at the latest."""


class TokenCache(Protocol):
    """Raises CacheAway and nothing else; safe from many threads."""

    def take(
        self, name: str, stale: str, fresh_ms: int, lease_ms: int
    ) -> StoredToken | Leased | Busy:
        """Returns a token whose digest is not `stale` or that is no older than `fresh_ms`; else the lease;
        Busy if another has it."""

    def put(self, name: str, fence: str, token: StoredToken) -> bool:
        """Keeps the token and ends the lease. Returns False, and keeps nothing, if the lease was lost."""

    def give_up(self, name: str, fence: str) -> None:
        """Ends the lease without a token."""

    def close(self) -> None:
        """Close what it holds open; idempotent."""


def new_fence() -> str:
    """Returns a unique name for one lease. A counter would begin again after a flush of the store."""
    return secrets.token_hex(16)


class RedisTokenCache(RedisBacked):
    """One script a call; see `TokenCache`."""

    def __init__(self, settings: RedisSettings) -> None:
        """Connects to nothing yet; raises ValueError for a URL that cannot be read."""
        super().__init__(settings)
        self._prefix = f"{settings.prefix}:token:"
        self._take = self._client.register_script(_TAKE)
        self._put = self._client.register_script(_PUT)
        self._give_up = self._client.register_script(_GIVE_UP)

    def take(
        self, name: str, stale: str, fresh_ms: int, lease_ms: int
    ) -> StoredToken | Leased | Busy:
        fence = new_fence()
        found = self._answer(self._take, self._keys(name), [stale, fresh_ms, fence, lease_ms])
        if found[0] == b"kept":
            return StoredToken(found[1], found[2].decode(), found[3], int(found[4]))
        if found[0] == b"leased":
            return Leased(fence)
        return Busy(max(0, found[1]))

    def put(self, name: str, fence: str, token: StoredToken) -> bool:
        arguments = [fence, token.sealed, token.digest, max(1, token.left_ms)]
        return bool(self._answer(self._put, self._keys(name), arguments) == 1)

    def give_up(self, name: str, fence: str) -> None:
        self._answer(self._give_up, self._keys(name)[1:], [fence])

    def _keys(self, name: str) -> list[str]:
        return [self._prefix + name, f"{self._prefix}{name}:lease"]

    @staticmethod
    def _answer(call: Any, *arguments: Any) -> Any:
        try:
            return guarded(call, *arguments)
        except RedisAway as exc:
            raise CacheAway(f"redis: {exc}") from exc
