"""The pre-filter on Redis; implements `idempotency.prefilter.Prefilter`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from backends.redis.client import RedisStore
from backends.redis.outage_guard import OutageGuard
from backends.settings import Settings, SettingsError
from idempotency.payload_cipher import DIGEST_BYTES
from idempotency.prefilter import NoPrefilter, Prefilter

TTL_MS: Final = 48 * 3_600_000
"""A message is unlikely to be read again later; the ledger still knows it then."""
_EFFECT: Final = (
    "slower; best_effort lanes send again what they read again, nothing else is sent twice"
)


class RedisPrefilter:
    """Marks of one ledger, named by its identity. Thread-safe; never raises."""

    def __init__(
        self,
        store: RedisStore,
        identity: str,
        *,
        prefix: str = "hongyan",
        ttl_ms: int = TTL_MS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hits = 0
        self.misses = 0
        self._store = store
        self._settled = f"{prefix}:{identity}:"
        # Apart from the marks: no ledger has settled the keys of `best_effort` lanes.
        self._named = f"{prefix}:{identity}:first:"
        self._ttl_ms = ttl_ms
        # Two, since a server that is full or a replica answers questions and refuses writes: with one guard
        # each answer would end the outage, and each write begin the next.
        self._patience = OutageGuard("prefilter", _EFFECT, monotonic=monotonic)
        self._writing = OutageGuard("prefilter_marks", _EFFECT, monotonic=monotonic)
        self._lock = threading.Lock()  # guards the counters

    @property
    def errors(self) -> int:
        """Calls that Redis did not answer."""
        return self._patience.errors + self._writing.errors

    @property
    def skipped(self) -> int:
        """Calls not made during an outage of Redis."""
        return self._patience.skipped + self._writing.skipped

    def lookup(self, keys: Sequence[str]) -> list[bytes | None]:
        names = [self._settled + key for key in keys]
        found = self._patience.ask(lambda: self._store.get(names)) if names else []
        if found is None:
            return [None] * len(keys)
        marks = [m if m is not None and len(m) == DIGEST_BYTES else None for m in found]
        misses = marks.count(None)
        with self._lock:
            self.misses += misses
            self.hits += len(marks) - misses
        return marks

    def mark(self, settled: Sequence[tuple[str, bytes]]) -> None:
        names = [self._settled + key for key, _digest in settled]
        digests = [digest for _key, digest in settled]
        if names:
            self._writing.ask(lambda: self._store.set(names, digests, self._ttl_ms))

    def first(self, keys: Sequence[str]) -> list[bool]:
        names = [self._named + key for key in keys]
        made = self._writing.ask(lambda: self._store.set_new(names, self._ttl_ms)) if names else []
        return [True] * len(keys) if made is None else made

    def close(self) -> None:
        """Closes the connections; idempotent."""
        self._store.close()


def open_prefilter(settings: Settings, identity: str) -> Prefilter:
    """Returns the pre-filter of `settings.redis` for the ledger of that identity; NoPrefilter for no URL.

    Raises SettingsError for a URL that cannot be read; a Redis that is away is no error.
    """
    if not settings.redis.url:
        return NoPrefilter()
    try:
        store = RedisStore(settings.redis)
    except ValueError as exc:
        raise SettingsError(f"redis.url: {exc}") from exc
    return RedisPrefilter(store, identity, prefix=settings.redis.prefix)
