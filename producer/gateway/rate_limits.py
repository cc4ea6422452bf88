"""The rate limit of each API key: the fleet's bucket in Redis, or one in each process without it.

While Redis is away each process counts for itself: a fleet then lets through more, and stops nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from backends.redis.client import RedisAway
from backends.redis.token_bucket import Ask, Buckets, Grant, LocalBuckets
from producer.gateway.api_keys import ApiKey
from producer.gateway.problems import GatewayProblem

log = structlog.get_logger(__name__)
_NAME: Final = "gateway:"


class KeyRates:
    """Belongs to the event loop's thread."""

    def __init__(self, shared: Buckets | None, local: Buckets | None = None) -> None:
        """`shared`: the fleet's; None without Redis."""
        self._shared = shared
        self._local = local or LocalBuckets()
        self._away = False

    async def take(self, key: ApiKey, cost: int = 1, paid: int = 0) -> None:
        """Takes `cost` tokens, of which `paid` were taken before. A cost above a full bucket takes a full
        one, and the rest is a debt. Raises GatewayProblem with Retry-After; what was paid then stays paid,
        so that no refused batch is free."""
        terms = key.terms
        want = min(cost, terms.burst)
        ask = Ask(_NAME + key.id, terms.rate_per_s, terms.burst, want, 0, paid)
        (grant,) = await self._asked([ask])
        passes = grant.tokens >= want
        back = want - cost if passes else grant.tokens - paid
        if back:
            await self._asked([ask._replace(want=0, back=back)])
        if passes:
            return
        missing = want - grant.tokens + paid
        wait_s = grant.wait_ms / 1_000 + missing / terms.rate_per_s
        raise GatewayProblem(
            429,
            "rate_limited",
            f"this key may send {terms.rate_per_s:g} a second and {terms.burst:,} at once",
            retry_after_s=wait_s,
        )

    async def _asked(self, asks: Sequence[Ask]) -> list[Grant]:
        if self._shared is None:
            return self._local.take(asks)
        try:
            found = await asyncio.to_thread(self._shared.take, asks)
        except RedisAway as exc:
            if not self._away:
                log.warning("gateway_rates_not_shared", cause=str(exc))
            self._away = True
            return self._local.take(asks)
        self._away = False
        return found
