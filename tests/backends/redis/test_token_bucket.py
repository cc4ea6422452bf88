"""Buckets of a fleet: what is given at once, what is promised, and to whom. Redis and its twin alike."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
import redis

from backends.redis.client import RedisAway
from backends.redis.token_bucket import LONGEST_MS, Ask, Buckets, Grant, LocalBuckets, RedisBuckets
from backends.settings import RedisSettings
from deploy.local.stack import Stack

SLOW_MS = 900
"""How late Redis may answer on a busy machine; rates here are a token a second at most."""


class World(Protocol):
    """Buckets whose time can be moved."""

    @property
    def buckets(self) -> Buckets: ...

    def later(self, ms: float) -> None: ...


class RedisWorld:
    def __init__(self, url: str) -> None:
        self.url = url
        self.buckets = RedisBuckets(RedisSettings(url=url, timeout_ms=5_000), "ledger-a")
        self.raw = redis.Redis.from_url(url)

    def fill(self) -> None:
        """The buckets that tests ask were made long ago."""
        bursts = {"main": 10, "a": 2, "b": 7, "c": 5, "never asked": 10}
        self.buckets.take([Ask(name, 1.0, burst, 0, 0) for name, burst in bursts.items()])
        self.later(1_000_000)

    def later(self, ms: float) -> None:
        """Redis's clock cannot be moved; what it wrote down can."""
        for key in self.raw.keys("*:rate:*"):
            self.raw.hincrbyfloat(key, "at", -ms)

    def close(self) -> None:
        self.buckets.close()
        self.raw.close()


class LocalWorld:
    def __init__(self) -> None:
        self.now = 100.0
        self.buckets = LocalBuckets(lambda: self.now)

    def later(self, ms: float) -> None:
        self.now += ms / 1_000


@pytest.fixture(params=["redis", "local"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "local":
        yield LocalWorld()
        return
    world = RedisWorld(request.getfixturevalue("redis_url"))
    world.fill()
    yield world
    world.close()


def ask(world: World, want: int, *, rate: float = 1.0, burst: int = 10, back: int = 0) -> Grant:
    return world.buckets.take([Ask("main", rate, burst, want, want, back)])[0]


# -- at once --


def test_a_bucket_left_alone_is_full(world: World) -> None:
    assert ask(world, 4) == (4, 0)
    assert ask(world, 100) == (6, 0)


def test_nothing_wanted_is_nothing_taken(world: World) -> None:
    assert ask(world, 0) == (0, 0)
    assert ask(world, 100) == (10, 0)
    assert ask(world, 0) == (0, 0)


def test_it_fills_at_its_rate_and_never_above_its_burst(world: World) -> None:
    ask(world, 10)
    world.later(3_000)
    assert ask(world, 10) == (3, 0)
    world.later(1_000_000)
    assert ask(world, 100) == (10, 0)


def test_what_was_given_back_can_be_taken_again(world: World) -> None:
    ask(world, 10)
    assert ask(world, 10, back=4) == (4, 0)


def test_what_is_given_back_never_fills_it_above_its_burst(world: World) -> None:
    assert ask(world, 100, back=50) == (10, 0)


def test_what_was_used_elsewhere_is_taken_off(world: World) -> None:
    assert ask(world, 100, back=-7) == (3, 0)


def test_buckets_are_asked_together_and_have_nothing_to_do_with_each_other(world: World) -> None:
    asks = [Ask("a", 1.0, 2, 5, 1), Ask("b", 1.0, 7, 5, 1), Ask("c", 1.0, 5, 0, 0)]
    assert world.buckets.take(asks) == [(2, 0), (5, 0), (0, 0)]
    assert world.buckets.take([]) == []


# -- promised --


def test_an_empty_bucket_promises_all_that_is_wanted_from_a_time_to_come(world: World) -> None:
    ask(world, 10)
    tokens, wait_ms = ask(world, 5)
    assert tokens == 5
    assert 5_000 - SLOW_MS <= wait_ms <= 5_000


def test_less_may_be_promised_than_would_be_taken_at_once(world: World) -> None:
    bucket = Ask("main", 1.0, 10, 8, 2)
    assert world.buckets.take([bucket]) == [(8, 0)]
    assert world.buckets.take([bucket]) == [(2, 0)]
    assert world.buckets.take([bucket])[0].tokens == 2
    assert world.buckets.take([bucket._replace(ahead=0)])[0].tokens == 0


def test_those_who_wait_are_served_one_after_the_other(world: World) -> None:
    ask(world, 10)
    waits = [ask(world, 2).wait_ms for _ in range(4)]
    for place, wait_ms in enumerate(waits, 1):
        assert 2_000 * place - SLOW_MS <= wait_ms <= 2_000 * place


def test_a_promise_given_back_lets_the_next_one_go_sooner(world: World) -> None:
    ask(world, 10)
    ask(world, 5)
    tokens, wait_ms = ask(world, 1, back=5)
    assert tokens == 1
    assert wait_ms <= 1_000


def test_no_promise_reaches_far_and_who_gets_none_is_told_when_to_ask_again(world: World) -> None:
    ask(world, 10)
    assert ask(world, 10, rate=0.25).wait_ms <= 40_000
    tokens, wait_ms = ask(world, 10, rate=0.25)
    assert tokens == 0
    assert 80_000 - LONGEST_MS - SLOW_MS <= wait_ms <= 80_000 - LONGEST_MS
    world.later(wait_ms)
    assert ask(world, 10, rate=0.25).tokens == 10


def test_a_fraction_of_a_token_is_not_lost(world: World) -> None:
    ask(world, 10, rate=0.5)
    for _ in range(3):
        world.later(1_000)
        ask(world, 0, rate=0.5)
    assert ask(world, 10, rate=0.5) == (1, 0)
    assert ask(world, 1, rate=0.5).wait_ms <= 1_000


@pytest.mark.parametrize("seed", range(5))
def test_over_any_time_no_more_may_be_used_than_burst_and_rate_allow(
    world: World, seed: int
) -> None:
    dice, now, uses = random.Random(seed), 0.0, list[tuple[float, int]]()
    for _ in range(60):
        tokens, wait_ms = ask(world, dice.randint(1, 5))
        uses.append((now + wait_ms, tokens))
        pause = dice.choice([0, 0, 500, 3_000, 30_000])
        world.later(pause)
        now += pause
    for start in {at for at, _ in uses}:
        for end in {at for at, _ in uses if at >= start}:
            used = sum(tokens for at, tokens in uses if start <= at <= end)
            assert used <= 10 + (end - start + SLOW_MS) / 1_000


# -- the twin --


def test_emptied_the_twin_fills_every_bucket_from_nothing() -> None:
    world = LocalWorld()
    ask(world, 1)
    world.buckets.empty()
    assert ask(world, 1).wait_ms == 1_000
    world.later(4_000)
    other = world.buckets.take([Ask("never asked", 1.0, 10, 10, 0)])[0]
    assert other == (4, 0)


# -- Redis --


@pytest.fixture
def shared(redis_url: str) -> Iterator[RedisWorld]:
    world = RedisWorld(redis_url)
    world.fill()
    yield world
    world.close()


def test_a_bucket_that_nobody_asked_for_a_month_is_forgotten(shared: RedisWorld) -> None:
    """Not earlier: one that is missing then is one that Redis lost."""
    ask(shared, 4)
    (key,) = shared.raw.keys("*:rate:main")
    life: Any = shared.raw.pttl(key)
    assert 29 * 86_400_000 < life <= 30 * 86_400_000


def test_buckets_of_another_deployment_are_others(shared: RedisWorld) -> None:
    ask(shared, 10)
    other = RedisBuckets(RedisSettings(url=shared.url, timeout_ms=5_000), "ledger-b")
    assert other.take([Ask("main", 1.0, 10, 10, 0)]) == [(1, 0)]
    other.close()


def test_flushed_with_its_scripts_it_begins_almost_empty(
    private_stack: Callable[..., AbstractContextManager[Stack]],
) -> None:
    """Nobody knows what went before: a full bucket would be a second burst."""
    with private_stack(only=["redis"]) as stack:
        world = RedisWorld(stack.redis_url)
        world.fill()
        ask(world, 10)
        for _ in range(3):
            world.raw.flushall()
            world.raw.script_flush()
            assert ask(world, 10) == (1, 0)
        world.close()


def test_a_new_bucket_of_the_fleet_holds_a_tenth_of_a_second(shared: RedisWorld) -> None:
    assert shared.buckets.take([Ask("fast", 500.0, 500, 500, 0)])[0].tokens == 50
    assert shared.buckets.take([Ask("small", 500.0, 20, 500, 0)])[0].tokens == 20


def test_a_clock_that_went_back_takes_nothing_away(shared: RedisWorld) -> None:
    ask(shared, 6)
    shared.later(-3_600_000)
    assert ask(shared, 10) == (4, 0)
    shared.later(2_000)
    assert ask(shared, 10) == (2, 0)


def test_a_refused_connection_is_told() -> None:
    buckets = RedisBuckets(RedisSettings(url="redis://127.0.0.1:1"), "a")
    with pytest.raises(RedisAway):
        buckets.take([Ask("main", 1.0, 10, 1, 0)])
    buckets.close()


def drain(url: str, together: Any, told: Any) -> None:
    """One process that takes what it can, and uses nothing before it may."""
    buckets = RedisBuckets(RedisSettings(url=url, timeout_ms=5_000), "fleet")
    together.wait()
    begun = now = time.monotonic()
    mine = 0
    while now < begun + 2.0:
        tokens, wait_ms = buckets.take([Ask("main", 200.0, 20, 5, 5)])[0]
        time.sleep(wait_ms / 1_000)
        mine, now = mine + tokens, time.monotonic()
    told.put((mine, begun, now))


def test_several_processes_share_one_rate_and_none_starves(redis_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    together, told = spawn.Barrier(4), spawn.Queue()
    processes = [spawn.Process(target=drain, args=(redis_url, together, told)) for _ in range(4)]
    for process in processes:
        process.start()
    results = [told.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    lasted = max(end for _, _, end in results) - min(begun for _, begun, _ in results)
    shares = sorted(mine for mine, _, _ in results)
    assert 0.5 * 200 * lasted <= sum(shares) <= 20 + 200 * lasted
    assert shares[0] >= 0.15 * sum(shares), f"one got too little: {shares}"
