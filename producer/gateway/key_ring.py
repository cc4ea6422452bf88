"""All valid API keys in memory, read again every second: a revoked key ends everywhere within seconds.

A request costs no query, and an unknown key none either. Without an answer of the database for STALE_S no
key is taken any more: it may be revoked (docs/decisions/228-a-gateway-reads-all-keys-every-second.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog

from producer.gateway.api_keys import ApiKey, is_secret_of, split

log = structlog.get_logger(__name__)

EVERY_S: Final = 1.0
STALE_S: Final = 5.0
Load = Callable[[], Mapping[str, ApiKey]]


class KeysStale(Exception):
    """The keys were not read for too long."""


class _Snapshot(NamedTuple):
    keys: Mapping[str, ApiKey]
    at: float
    """Monotonic time before the read."""


class KeyRing:
    """One thread reads the keys; any thread asks."""

    def __init__(
        self,
        load: Load,
        now_ms: Callable[[], int],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load` raises LedgerError. `now_ms`: wall clock, for the ends of keys between two reads."""
        self._load = load
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._snapshot = _Snapshot({}, float("-inf"))  # replaced by `look`
        self._stop = threading.Event()
        self.beat = monotonic()
        """Monotonic time of the thread's last round; written by `_run`."""
        self._away = False  # written by `look`

    def look(self) -> None:
        """Reads all keys. Never raises: after any error the keys of the last read hold, for STALE_S."""
        before = self._monotonic()
        try:
            self._snapshot = _Snapshot(self._load(), before)
        except Exception as exc:  # any error of the database: `age_s` grows
            if not self._away:
                log.warning("api_keys_not_read", cause=str(exc))
            self._away = True
            return
        if self._away:
            log.info("api_keys_read_again", keys=len(self._snapshot.keys))
        self._away = False

    def start(self) -> None:
        """Reads once, and then in a thread until `stop`."""
        self.look()
        self._thread = threading.Thread(target=self._run, name="api-keys", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and waits for its last read; idempotent."""
        self._stop.set()
        self._thread.join(STALE_S)

    @property
    def alive(self) -> bool:
        """Whether the thread lives."""
        return self._thread.is_alive()

    @property
    def age_s(self) -> float:
        """Seconds since the last read that succeeded."""
        return self._monotonic() - self._snapshot.at

    def of_token(self, token: str) -> tuple[str, ApiKey] | None:
        """Returns prefix and key of a valid token; None for any other text. Raises KeysStale."""
        parts = split(token)
        if parts is None:
            return None
        prefix, secret = parts
        key = self.of_prefix(prefix)
        if key is None or not is_secret_of(prefix, secret, key.digest):
            return None
        return prefix, key

    def of_prefix(self, prefix: str) -> ApiKey | None:
        """Returns the key of a prefix if it is valid now. Raises KeysStale."""
        snapshot = self._snapshot
        if self._monotonic() - snapshot.at > STALE_S:
            raise KeysStale
        key = snapshot.keys.get(prefix)
        if key is None or (key.ends_at is not None and key.ends_at <= self._now_ms()):
            return None
        return key

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.look()
            self.beat = self._monotonic()
