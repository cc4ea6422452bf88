"""A key's bucket: a batch counts all its items, in Redis and in one process alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from backends.redis.token_bucket import Ask, LocalBuckets, RedisBuckets
from backends.settings import RedisSettings
from producer.gateway.api_keys import ApiKey, terms_of
from producer.gateway.problems import GatewayProblem
from producer.gateway.rate_limits import KeyRates

RATE, BURST = 0.1, 10
KEY = ApiKey("k", "shop", terms_of(["send"], [], RATE, BURST), "digest", None)
SLOW_S = 5
"""How late Redis may answer on a busy machine; the rate is a token in ten seconds."""


class LocalWorld:
    """A gateway without Redis, and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rates = KeyRates(None, LocalBuckets(lambda: self.now))

    def later(self, seconds: float) -> None:
        self.now += seconds


class RedisWorld:
    """A fleet's bucket, made long ago. Redis's clock cannot be moved; what it wrote down can."""

    def __init__(self, url: str) -> None:
        self.buckets = RedisBuckets(RedisSettings(url=url, timeout_ms=5_000), "ledger")
        self.rates = KeyRates(self.buckets)
        self.raw = redis.Redis.from_url(url)
        self.buckets.take([Ask("gateway:k", RATE, BURST, 0, 0)])
        self.later(1_000)

    def later(self, seconds: float) -> None:
        for key in self.raw.keys("*:rate:*"):
            self.raw.hincrbyfloat(key, "at", -1_000 * seconds)


@pytest.fixture(params=["local", "redis"])
def world(request: pytest.FixtureRequest) -> Iterator[LocalWorld | RedisWorld]:
    if request.param == "local":
        yield LocalWorld()
        return
    world = RedisWorld(request.getfixturevalue("redis_url"))
    yield world
    world.buckets.close()
    world.raw.close()


def refused_s(world: LocalWorld | RedisWorld, items: int = 0) -> float:
    """Makes a request as the application does, a batch with `items`. Returns its Retry-After in seconds; 0:
    it passes."""

    async def ask() -> None:
        await world.rates.take(KEY)
        if items:
            await world.rates.take(KEY, items, paid=1)

    try:
        asyncio.run(ask())
    except GatewayProblem as exc:
        return exc.retry_after_s or 0.0
    return 0.0


def test_a_batch_takes_a_token_for_each_item(world: LocalWorld | RedisWorld) -> None:
    assert refused_s(world, 4) == 0
    assert refused_s(world, 6) == 0
    assert 0 < refused_s(world) <= 10


def test_a_batch_above_the_burst_goes_from_a_full_bucket_and_is_paid_in_full(
    world: LocalWorld | RedisWorld,
) -> None:
    assert refused_s(world, 14) == 0
    assert 50 - SLOW_S < refused_s(world) <= 50
    world.later(50 - SLOW_S)
    assert refused_s(world) > 0
    world.later(SLOW_S)
    assert refused_s(world) == 0


def test_a_batch_goes_after_the_time_that_its_refusal_named(world: LocalWorld | RedisWorld) -> None:
    assert refused_s(world, 8) == 0
    wait_s = refused_s(world, 50)
    assert 90 - SLOW_S < wait_s <= 90
    world.later(wait_s)
    assert refused_s(world, 50) == 0


def test_a_debt_above_a_minute_is_named_in_full(world: LocalWorld | RedisWorld) -> None:
    """A token bucket promises nothing for later than a minute. A gateway asks for no promise."""
    assert refused_s(world, BURST + 20) == 0
    wait_s = refused_s(world)
    assert 210 - SLOW_S < wait_s <= 210
    world.later(wait_s - 20)
    assert refused_s(world) > 0
    world.later(20)
    assert refused_s(world) == 0


def test_a_refused_batch_costs_one_token(world: LocalWorld | RedisWorld) -> None:
    assert refused_s(world, 8) == 0
    assert refused_s(world, 3) > 0
    assert refused_s(world) == 0
    assert refused_s(world) > 0
