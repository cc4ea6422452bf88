"""Redis clients: few commands, a hard time limit, no retries of the client's own.

Every failure is one error, RedisAway: no caller needs the difference. One script sets many keys with a
time to live; it costs the client a tenth of a pipeline (docs/decisions/014). One server or a replicated
pair; the keys of a batch would not share a slot of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from backends.settings import RedisSettings

_CONNECTIONS: Final = 16
_SET: Final = """
for i, key in ipairs(KEYS) do
    redis.call('SET', key, ARGV[i + 1], 'PX', ARGV[1])
end
return #KEYS"""
_SET_NEW: Final = """
local made = {}
for i, key in ipairs(KEYS) do
    made[i] = redis.call('SET', key, '1', 'NX', 'PX', ARGV[1]) and 1 or 0
end
return made"""


CLIENT_ERRORS: Final = (redis.RedisError, OSError)
"""All errors that a Redis client raises."""


class RedisAway(Exception):
    """Redis did not do it: away, too slow, full, loading, read-only, or no Redis."""


def connect(settings: RedisSettings) -> redis.Redis:
    """Returns a client that gives up after `timeout_ms` and repeats nothing; connects to nothing yet.

    Raises ValueError for a URL that cannot be read.
    """
    timeout_s = settings.timeout_ms / 1000
    _check_port(settings.url)
    try:
        return _client(settings, timeout_s)
    except (TypeError, redis.RedisError):  # raised for options when a connection is made
        raise ValueError("it has an option that is not known, or a wrong value of one") from None


def _check_port(url: str) -> None:
    """Raises ValueError, whose text is not urllib's: that one quotes the password up to a slash in it."""
    try:
        urlsplit(url).port  # noqa: B018 (raises ValueError for what is no port)
    except ValueError:
        raise ValueError(
            "its port is no number from 0 to 65535; / ? # [ ] in a password are written %2F %3F %23 %5B %5D"
        ) from None


def _client(settings: RedisSettings, timeout_s: float) -> redis.Redis:
    pool = redis.BlockingConnectionPool.from_url(
        settings.url,
        max_connections=_CONNECTIONS,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
        # Closes the connection; with no retries it repeats nothing. After a failover a connection may stay
        # with the former master, which refuses every write from then on.
        retry_on_error=[redis.ReadOnlyError],
        protocol=2,
        driver_info=None,
    )
    pool.connection_class(**pool.connection_kwargs)  # connects to nothing; checks the options
    return redis.Redis(connection_pool=pool)


def guarded(call: Any, *arguments: Any) -> Any:
    """Returns the answer of the call. Raises RedisAway for every failure."""
    try:
        return call(*arguments)
    except CLIENT_ERRORS as exc:
        raise RedisAway(str(exc) or type(exc).__name__) from exc


class RedisBacked:
    """Base of the stores on Redis, each with a client of its own. Thread-safe."""

    def __init__(self, settings: RedisSettings) -> None:
        """Connects to nothing yet; raises ValueError for a URL that cannot be read."""
        self._client = connect(settings)

    def close(self) -> None:
        """Closes the connections; idempotent."""
        self._client.close()
        self._client.connection_pool.disconnect()


class RedisStore(RedisBacked):
    """One round trip per call; thread-safe."""

    def __init__(self, settings: RedisSettings) -> None:
        """Connects to nothing yet; raises ValueError for a URL that cannot be read."""
        super().__init__(settings)
        self._set = self._client.register_script(_SET)
        self._set_new = self._client.register_script(_SET_NEW)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the values; None for a missing key or one that holds no string. Raises RedisAway."""
        return cast("list[bytes | None]", guarded(self._client.mget, keys))

    def set(self, keys: Sequence[str], values: Sequence[bytes], ttl_ms: int) -> None:
        """Sets each key, whatever its value was. Raises RedisAway."""
        guarded(self._set, keys, [ttl_ms, *values])

    def set_new(self, keys: Sequence[str], ttl_ms: int) -> list[bool]:
        """Sets the missing keys. Returns True for each key that was missing. Raises RedisAway."""
        return [made == 1 for made in guarded(self._set_new, keys, [ttl_ms])]
