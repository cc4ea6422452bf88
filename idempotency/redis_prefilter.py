"""The pre-filter on Redis; implements `idempotency.prefilter.Prefilter`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import structlog

from backends.redis_client import RedisAway, RedisStore
from backends.settings import Settings, SettingsError
from idempotency.payloads import DIGEST_BYTES
from idempotency.prefilter import NoPrefilter, Prefilter

TTL_MS: Final = 48 * 3_600_000
"""As long as a message is likely to be read again; what is forgotten the ledger still knows."""
PAUSE_S: Final = 1.0
"""How long Redis is left alone after it failed: an outage costs one timeout a second, not one a batch."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


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
        self.errors = 0
        """Calls that Redis did not answer."""
        self.skipped = 0
        """Calls not made while it was left alone."""
        self._store = store
        self._settled = f"{prefix}:{identity}:"
        # Apart from the marks: what `best_effort` has named, no ledger has settled.
        self._named = f"{prefix}:{identity}:first:"
        self._ttl_ms = ttl_ms
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the counters and the two below
        self._again_at = 0.0
        self._away = False

    def lookup(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `Prefilter.lookup`."""
        names = [self._settled + key for key in keys]
        found = self._ask(lambda: self._store.get(names)) if names else []
        if found is None:
            return [None] * len(keys)
        marks = [m if m is not None and len(m) == DIGEST_BYTES else None for m in found]
        misses = marks.count(None)
        with self._lock:
            self.misses += misses
            self.hits += len(marks) - misses
        return marks

    def mark(self, settled: Sequence[tuple[str, bytes]]) -> None:
        """See `Prefilter.mark`."""
        names = [self._settled + key for key, _digest in settled]
        digests = [digest for _key, digest in settled]
        if names:
            self._ask(lambda: self._store.set(names, digests, self._ttl_ms))

    def first(self, keys: Sequence[str]) -> list[bool]:
        """See `Prefilter.first`."""
        names = [self._named + key for key in keys]
        made = self._ask(lambda: self._store.set_new(names, self._ttl_ms)) if names else []
        return [True] * len(keys) if made is None else made

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._store.close()

    def _ask(self, call: Callable[[], T]) -> T | None:
        """The answer, or None where Redis gave none or is being left alone."""
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
            self._again_at = now + PAUSE_S  # one asks; the others wait for what it finds
            return True

    def _failed(self, exc: RedisAway) -> None:
        with self._lock:
            self.errors += 1
            self._again_at = self._monotonic() + PAUSE_S
            new, self._away = not self._away, True
        if new:
            _log.warning("prefilter.away", error=str(exc), effect="slower, nothing else")

    def _back(self) -> None:
        with self._lock:
            was, self._away = self._away, False
        if was:
            _log.info("prefilter.back", errors=self.errors, skipped=self.skipped)


def open_prefilter(settings: Settings, identity: str) -> Prefilter:
    """The pre-filter of `settings.redis` for the ledger of that identity; none for an empty url.

    Raises SettingsError for a URL that cannot be read; a Redis that is away is no error.
    """
    if not settings.redis.url:
        return NoPrefilter()
    try:
        store = RedisStore(settings.redis)
    except ValueError as exc:
        raise SettingsError(f"redis.url: {exc}") from exc
    return RedisPrefilter(store, identity, prefix=settings.redis.prefix)
