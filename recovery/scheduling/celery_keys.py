"""Celery's keys in Redis: checks their types and moves keys of a wrong type aside."""

from __future__ import annotations

from typing import Final

import structlog

from backends.redis.client import RedisAway
from backends.redis.client_types import KeyTypes
from backends.settings import RedisSettings

log = structlog.get_logger(__name__)
_OWN: Final = {"unacked": "hash", "unacked_index": "zset", "unacked_mutex": "string"}
_PRIORITIES: Final = ("", "\x06\x163", "\x06\x166", "\x06\x169")
"""kombu keeps a list for each priority step; the first has the queue's bare name."""


def key_types(prefix: str, queue: str) -> dict[str, str]:
    """Returns each key that kombu uses for this queue (kombu/transport/redis.py), with its type."""
    wanted = _OWN | {f"{queue}{step}": "list" for step in _PRIORITIES}
    wanted |= {f"_kombu.binding.{queue}": "set", "_kombu.binding_deadlines": "zset"}
    wanted[f"_kombu.binding_permanent.{queue}"] = "set"
    return {f"{prefix}{key}": kind for key, kind in wanted.items()}


class CeleryKeys:
    """Thread-safe. `mend` and `waiting` never raise."""

    def __init__(self, settings: RedisSettings, prefix: str, queue: str) -> None:
        """Raises ValueError for an invalid URL."""
        self._types = KeyTypes(settings, key_types(prefix, queue))
        self._queue = f"{prefix}{queue}"

    def mend(self) -> None:
        """Moves keys of a wrong type aside and logs each."""
        try:
            moved = self._types.mend()
        except RedisAway as exc:
            log.debug("celery_keys_not_checked", cause=str(exc))
            return
        for one in moved:
            log.error(
                "celery_key_moved",
                key=one.key,
                to=one.to,
                what=f"it was a {one.found} and Celery needs a {one.wanted};"
                " find out who wrote it, then delete the copy",
            )

    def waiting(self) -> int:
        """Returns the tasks that no worker has taken; 0 while Redis is away."""
        try:
            return self._types.length(self._queue)
        except RedisAway:
            return 0

    def close(self) -> None:
        """Closes the connections; idempotent."""
        self._types.close()
