"""What refusals teach: how long an account is shut, how fast it goes then. Redis and its twin alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
import redis

from backends.redis.paces import (
    DEFAULT_MS,
    FORGET_MS,
    LEAST_KEPT,
    LONGEST_MS,
    MOST_KEPT,
    LocalPaces,
    Pace,
    Paces,
    RedisPaces,
    Refusal,
)
from backends.redis.token_bucket import Ask, RedisBuckets
from backends.settings import RedisSettings

SLOW_MS = 900
"""How late Redis may answer on a busy machine."""


class World(Protocol):
    """Paces whose time can be moved."""

    @property
    def paces(self) -> Paces: ...

    def later(self, ms: float) -> None: ...


class RedisWorld:
    def __init__(self, url: str) -> None:
        self.paces = RedisPaces(RedisSettings(url=url, timeout_ms=5_000), "ledger-a")
        self.raw = redis.Redis.from_url(url)

    def later(self, ms: float) -> None:
        """Redis's clock cannot be moved; what it wrote down can."""
        for key in self.raw.keys("*:pace:*"):
            for field in ("since", "struck"):
                self.raw.hincrbyfloat(key, field, -ms)
            left = self.raw.pttl(key) - int(ms)
            self.raw.pexpire(key, left) if left > 0 else self.raw.delete(key)

    def close(self) -> None:
        self.paces.close()
        self.raw.close()


class LocalWorld:
    def __init__(self) -> None:
        self.now = 100.0
        self.paces = LocalPaces(lambda: self.now)

    def later(self, ms: float) -> None:
        self.now += ms / 1_000


@pytest.fixture(params=["redis", "local"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "local":
        yield LocalWorld()
        return
    world = RedisWorld(request.getfixturevalue("redis_url"))
    yield world
    world.close()


def refuse(world: World, wait_ms: int = 0, *, age_ms: int = 0, seen: float = 0.0) -> Pace:
    return world.paces.refused(Refusal("a", wait_ms, age_ms, seen))


def pace(world: World) -> Pace | None:
    (found,) = world.paces.paces(["a"])
    return found


def test_an_account_that_nobody_refused_has_no_pace(world: World) -> None:
    assert world.paces.paces(["a", "b"]) == [None, None]


def test_it_is_shut_for_as_long_as_the_provider_asked(world: World) -> None:
    refuse(world, 7_000)
    found = pace(world)
    assert found is not None
    assert 7_000 - SLOW_MS <= found.shut_ms <= 7_000
    world.later(7_001)
    opened = pace(world)
    assert opened is not None
    assert opened.shut_ms == 0


def test_without_a_time_it_is_shut_for_a_moment(world: World) -> None:
    assert refuse(world).shut_ms == DEFAULT_MS


def test_refused_again_without_a_call_that_went_well_it_is_shut_twice_as_long(world: World) -> None:
    shut = []
    for _ in range(7):
        shut.append(refuse(world, 1_000).shut_ms)
        world.later(shut[-1] + 1)
    assert shut == [1_000, 2_000, 4_000, 8_000, 16_000, LONGEST_MS, LONGEST_MS]


def test_a_longer_wish_than_that_is_kept_to(world: World) -> None:
    for _ in range(3):
        assert refuse(world, 3_600_000).shut_ms == 3_600_000
        world.later(3_600_001)


def test_after_calls_that_went_well_it_is_shut_for_no_longer_than_asked(world: World) -> None:
    for _ in range(3):
        assert refuse(world, 1_000, seen=20.0).shut_ms == 1_000
        world.later(1_500)


def test_refusals_of_calls_that_began_before_count_once(world: World) -> None:
    first = refuse(world, 1_000, age_ms=5, seen=20.0)
    world.later(50)
    later = refuse(world, 1_000, age_ms=2_000, seen=20.0)
    assert later.rate_per_s == pytest.approx(first.rate_per_s)
    assert 1_000 - SLOW_MS <= later.shut_ms <= 1_000
    assert refuse(world, 9_000, age_ms=4_000).shut_ms == 9_000, "the longer wish is lost"


def test_a_silence_of_known_length_is_kept_whatever_is_said_meanwhile(world: World) -> None:
    refuse(world, 600_000)
    world.later(1_000)
    shorter = refuse(world, 5_000)
    assert 599_000 - SLOW_MS <= shorter.shut_ms <= 599_000
    assert 599_000 - 2 * SLOW_MS <= refuse(world, seen=20.0).shut_ms <= 599_000


def test_it_learns_the_rate_that_went_well(world: World) -> None:
    assert refuse(world, 1_000, seen=20.0).rate_per_s == pytest.approx(18.0)


def test_one_refusal_takes_no_more_than_half_and_no_less_than_a_tenth(world: World) -> None:
    before = refuse(world, 1_000, seen=100.0).rate_per_s
    world.later(1_001)
    half = refuse(world, 1_000, seen=1.0).rate_per_s
    assert half == pytest.approx(LEAST_KEPT * before, rel=0.05)
    world.later(1_001)
    assert refuse(world, 1_000, seen=900.0).rate_per_s == pytest.approx(MOST_KEPT * half, rel=0.05)


def test_it_rises_slowly_above_what_went_well(world: World) -> None:
    refuse(world, 1_000, seen=20.0)
    world.later(11_000)
    found = pace(world)
    assert found is not None
    assert 22.0 < found.rate_per_s < 26.0


def test_it_begins_low_and_doubles_each_second_where_nothing_went_well(world: World) -> None:
    assert refuse(world, 1_000).rate_per_s == 1.0
    world.later(5_000)
    found = pace(world)
    assert found is not None
    assert 16.0 <= found.rate_per_s < 16.0 * 2 ** (SLOW_MS / 1_000)


def test_after_a_while_without_a_refusal_it_is_forgotten(world: World) -> None:
    refuse(world, 1_000)
    world.later(1_000 + FORGET_MS + 1)
    assert pace(world) is None


def test_accounts_do_not_slow_each_other(world: World) -> None:
    refuse(world, 1_000)
    assert world.paces.paces(["b"]) == [None]


def test_the_fleets_bucket_gives_nothing_while_the_account_is_shut(redis_url: str) -> None:
    """A worker that has not heard of it asks for tokens, and is told to wait."""
    settings = RedisSettings(url=redis_url, timeout_ms=5_000)
    paces, buckets = RedisPaces(settings, "ledger-a"), RedisBuckets(settings, "ledger-a")
    ask = Ask("main", 1_000.0, 1_000, 100, 100)
    assert buckets.take([ask])[0].tokens == 100
    paces.refused(Refusal("key", 60_000, 0, 0.0, ("main",)))
    (grant,) = buckets.take([ask])
    assert grant.tokens == 0
    assert 60_000 - SLOW_MS <= grant.wait_ms <= 60_000
    buckets.take([ask._replace(want=0, ahead=0, back=100)])
    assert buckets.take([ask])[0].tokens == 0, "what is given back opened it"
    paces.close()
    buckets.close()
