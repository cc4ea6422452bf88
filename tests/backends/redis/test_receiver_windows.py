"""Windows per receiver: never more than so many in any stretch of so long. Redis and its twin alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
import redis

from backends.redis.client import RedisAway
from backends.redis.receiver_windows import LocalWindows, Passage, RedisWindows, Window, Windows
from backends.settings import RedisSettings

MINUTE, HOUR = 60_000, 3_600_000
SLOW_MS = 20_000
"""How late Redis may answer on a busy machine, with much to spare."""
TWO_A_MINUTE = [Window(2, MINUTE)]


class World(Protocol):
    """Windows whose time can be moved."""

    @property
    def windows(self) -> Windows: ...

    def later(self, ms: int) -> None: ...


class RedisWorld:
    def __init__(self, url: str) -> None:
        self.url = url
        self.windows = RedisWindows(RedisSettings(url=url, timeout_ms=5_000), "ledger-a")
        self.raw = redis.Redis.from_url(url)

    def later(self, ms: int) -> None:
        """Redis's clock cannot be moved; what it wrote down can."""
        for key in self.raw.keys("*:receiver:*"):
            times: Any = self.raw.lrange(key, 0, -1)
            for place, at in enumerate(times):
                self.raw.lset(key, place, str(int(at) - ms))

    def close(self) -> None:
        self.windows.close()
        self.raw.close()


class LocalWorld:
    def __init__(self) -> None:
        self.now = 100_000
        self.windows = LocalWindows(lambda: self.now / 1_000)

    def later(self, ms: int) -> None:
        self.now += ms


@pytest.fixture(params=["redis", "local"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "local":
        yield LocalWorld()
        return
    world = RedisWorld(request.getfixturevalue("redis_url"))
    yield world
    world.close()


def enter(world: World, *names: str, windows: list[Window] = TWO_A_MINUTE) -> list[int]:
    return world.windows.enter([Passage(name, windows) for name in names])


def near(delay: int, ms: int) -> bool:
    return ms - SLOW_MS <= delay <= ms


def test_so_many_go_and_the_next_is_told_when_there_is_room(world: World) -> None:
    assert enter(world, "a") == [0]
    world.later(25_000)
    assert enter(world, "a") == [0]
    (delay,) = enter(world, "a")
    assert near(delay, 35_000)
    world.later(delay)
    assert enter(world, "a") == [0]


def test_what_was_refused_does_not_count(world: World) -> None:
    enter(world, "a", "a")
    for _ in range(5):
        assert enter(world, "a") != [0]
    world.later(MINUTE)
    assert enter(world, "a", "a") == [0, 0]


def test_each_receiver_has_windows_of_its_own(world: World) -> None:
    first, second, third, other = enter(world, "a", "a", "a", "b")
    assert (first, second, other) == (0, 0, 0)
    assert third > 0


def test_several_refused_in_one_batch_get_one_place_each(world: World) -> None:
    enter(world, "a")
    world.later(30_000)
    enter(world, "a")
    delays = enter(world, *["a"] * 5)
    for delay, ms in zip(delays, [30_000, 60_000, 90_000, 120_000, 150_000], strict=True):
        assert near(delay, ms)


def test_of_several_windows_the_fullest_decides(world: World) -> None:
    windows = [Window(2, MINUTE), Window(3, HOUR)]
    assert enter(world, "a", "a", windows=windows) == [0, 0]
    (delay,) = enter(world, "a", windows=windows)
    assert near(delay, MINUTE)
    world.later(MINUTE)
    assert enter(world, "a", windows=windows) == [0]
    (delay,) = enter(world, "a", windows=windows)
    assert near(delay, HOUR - MINUTE)


def test_without_a_limit_everything_goes(world: World) -> None:
    assert enter(world, *["a"] * 50, windows=[]) == [0] * 50
    assert enter(world) == []


def test_accounts_with_other_limits_are_asked_together(world: World) -> None:
    one, two = Passage("x", [Window(1, MINUTE)]), Passage("y", [Window(9, HOUR), Window(2, 1_000)])
    assert [d > 0 for d in world.windows.enter([one, two, one, two, one])] == [
        False,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("seed", range(3))
def test_in_no_stretch_of_time_too_many_go(world: World, seed: int) -> None:
    dice, now, went = random.Random(seed), 0, list[int]()
    windows = [Window(3, 10 * MINUTE), Window(5, HOUR)]
    for _ in range(80):
        now += (pause := dice.choice([0, MINUTE, 5 * MINUTE, 20 * MINUTE]))
        world.later(pause)
        went += [
            now for delay in enter(world, *["a"] * dice.randint(1, 3), windows=windows) if not delay
        ]
    assert len(went) > 20
    for most, span_ms in windows:
        for start in went:
            assert sum(start <= at < start + span_ms - SLOW_MS for at in went) <= most


# -- the twin --


def test_the_twin_counts_what_another_let_go() -> None:
    world = LocalWorld()
    world.windows.count([Passage("a", TWO_A_MINUTE)] * 2)
    assert enter(world, "a") == [MINUTE]


def test_the_twin_forgets_who_got_nothing_for_longest() -> None:
    windows = LocalWindows(lambda: 1.0, receivers_at_most=2)
    once = [Window(1, MINUTE)]
    for name in "abac":
        windows.enter([Passage(name, once)])
    assert len(windows) == 2
    assert windows.enter([Passage("c", once)]) == [MINUTE]


def test_a_smaller_share_looks_only_at_what_went_last() -> None:
    world = LocalWorld()
    world.windows.count([Passage("a", TWO_A_MINUTE)])
    assert enter(world, "a", windows=[Window(1, MINUTE)]) == [MINUTE]


# -- Redis --


@pytest.fixture
def shared(redis_url: str) -> Iterator[RedisWorld]:
    world = RedisWorld(redis_url)
    yield world
    world.close()


def test_a_receiver_that_got_nothing_for_the_longest_window_is_forgotten(
    shared: RedisWorld,
) -> None:
    enter(shared, "a", windows=[Window(2, MINUTE), Window(3, HOUR)])
    (key,) = shared.raw.keys()
    life: Any = shared.raw.pttl(key)
    assert HOUR - SLOW_MS <= life <= HOUR


def test_no_more_times_are_kept_than_the_largest_window_needs(shared: RedisWorld) -> None:
    for _ in range(20):
        enter(shared, "a", "a", windows=[Window(2, 1_000), Window(4, 2_000)])
        shared.later(10_000)
    (key,) = shared.raw.keys()
    assert shared.raw.llen(key) == 4


def test_several_processes_count_together(shared: RedisWorld) -> None:
    other = RedisWindows(RedisSettings(url=shared.url, timeout_ms=5_000), "ledger-a")
    assert enter(shared, "a") == [0]
    assert other.enter([Passage("a", TWO_A_MINUTE)]) == [0]
    assert enter(shared, "a") != [0]
    other.close()


def test_a_refused_connection_is_told() -> None:
    windows = RedisWindows(RedisSettings(url="redis://127.0.0.1:1"), "a")
    with pytest.raises(RedisAway):
        windows.enter([Passage("a", TWO_A_MINUTE)])
    windows.close()
