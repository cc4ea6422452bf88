"""Reads the server's settings that decide what Redis may forget, for doctor. It writes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import msgspec

from backends.redis.client import RedisAway, connect, guarded
from backends.settings import RedisSettings


class RedisState(msgspec.Struct, frozen=True):
    """One server. `refusal` says why it is not known."""

    eviction: str = ""
    maxmemory: int = 0
    append_only: bool = False
    snapshots: bool = False
    replicas: int = 0
    version: str = ""
    now_ms: int = 0
    refusal: str = ""


def inspect_redis(settings: RedisSettings) -> RedisState:
    """Returns the server's state; its refusal if it did not answer. Raises ValueError for a wrong URL."""
    with closing(connect(settings)) as client:
        try:
            info: dict[str, Any] = guarded(client.info)
            seconds, micros = guarded(client.time)
        except RedisAway as exc:
            return RedisState(refusal=f"Redis did not answer ({exc}); it may need +info and +time")
    return RedisState(
        eviction=str(info.get("maxmemory_policy", "")),
        maxmemory=int(info.get("maxmemory", 0)),
        append_only=bool(int(info.get("aof_enabled", 0))),
        snapshots=int(info.get("rdb_last_save_time", 0)) > 0,
        replicas=int(info.get("connected_slaves", 0)),
        version=str(info.get("redis_version", "")),
        now_ms=int(seconds) * 1_000 + int(micros) // 1_000,
    )
