"""Limits per receiver: who must wait, with Redis and without, and what Redis gets to see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest
import redis

from backends.redis.client import RedisAway
from backends.redis.outage_guard import PAUSE_S
from backends.redis.receiver_windows import LocalWindows, Passage, RedisWindows
from backends.settings import RedisSettings
from channels.channel import Account
from channels.providers.null import NullChannel
from channels.providers.wecom.app import WecomChannel
from sending.accounts.receiver_limits import Limited, ReceiverLimits, limits_of

WECOM = ((30, 60), (1_000, 3_600))
SLACK_MS = 2_000


class Redis:
    """The fleet's windows, that can be away or forget; remembers what it was asked."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.flush()
        self.away = False
        self.asked: list[list[Passage]] = []

    def flush(self) -> None:
        self.windows = LocalWindows(self._monotonic)

    def enter(self, batch: Sequence[Passage]) -> list[int]:
        self.asked.append(list(batch))
        if self.away:
            raise RedisAway("connection refused")
        return self.windows.enter(batch)


class Bench:
    """Workers of one fleet whose time is moved by hand."""

    def __init__(self, workers: int = 1, shared: bool = True) -> None:
        self.time = 100.0
        self.redis = Redis(lambda: self.time)
        self.workers = [
            ReceiverLimits(
                {
                    "wecom": Limited(WECOM, "wecom"),
                    "fast": Limited(((5, 1),), "fast"),
                    "robot": Limited(((20, 60),), "robot-1", each=False),
                    "same": Limited(((20, 60),), "robot-1", each=False),
                },
                self.redis if shared else None,
                workers=lambda _name: workers,
                monotonic=lambda: self.time,
            )
            for _ in range(workers)
        ]
        self.limits = self.workers[0]

    def go(self, count: int, account: str = "wecom", worker: int = 0) -> int:
        """How many of so many to one receiver may go now."""
        return self.workers[worker].delays([(account, "li")] * count).count(0)


def test_so_many_a_minute_go_and_the_rest_waits_a_little_longer_than_the_window() -> None:
    bench = Bench()
    delays = bench.limits.delays([("wecom", "li")] * 31)
    assert delays == [0] * 30 + [60_000 + SLACK_MS]
    bench.time += 62.0
    assert bench.go(31) == 30


def test_the_longer_window_holds_too() -> None:
    bench = Bench()
    went = 0
    for _ in range(57):
        went += bench.go(30)
        bench.time += 62.1
    assert went == 1_000


def test_a_short_window_gets_a_short_slack() -> None:
    bench = Bench()
    assert bench.limits.delays([("fast", "li")] * 6) == [0] * 5 + [1_100]


def test_accounts_without_limits_are_not_asked_about() -> None:
    bench = Bench()
    assert bench.limits.delays([("smtp", "li")] * 100) == [0] * 100
    assert bench.redis.asked == []
    assert bench.limits.delays([("smtp", "li"), ("wecom", "li"), ("smtp", "li")]) == [0, 0, 0]
    assert [len(batch) for batch in bench.redis.asked] == [1]


def test_a_batch_is_one_question() -> None:
    bench = Bench()
    bench.limits.delays([("wecom", f"member-{n}") for n in range(500)])
    assert [len(batch) for batch in bench.redis.asked] == [500]


def test_a_receiver_of_one_account_has_nothing_to_do_with_the_same_of_another() -> None:
    bench = Bench()
    bench.go(30)
    assert bench.go(5, "fast") == 5


def test_no_receiver_leaves_the_worker_in_plain_text() -> None:
    bench = Bench()
    bench.limits.delays([("wecom", "li"), ("wecom", "13800000001")])
    assert not any("li" in p.name or "138" in p.name for p in bench.redis.asked[0])


def test_workers_share_one_limit() -> None:
    bench = Bench(workers=3)
    assert [bench.go(20, worker=n) for n in range(3)] == [20, 10, 0]


# -- without Redis --


def test_without_redis_each_worker_lets_its_share_go() -> None:
    bench = Bench(workers=4, shared=False)
    assert [bench.go(30, worker=n) for n in range(4)] == [7] * 4
    bench.time += 62.0
    assert bench.go(30) == 7


def test_even_a_share_below_one_is_one() -> None:
    bench = Bench(workers=9, shared=False)
    assert bench.go(5, "fast") == 1


def test_an_outage_forgets_nothing_that_this_worker_let_go() -> None:
    bench = Bench(workers=2)
    assert bench.go(15) == 15
    bench.redis.away = True
    assert bench.go(30) == 0
    bench.time += 62.0
    assert bench.go(30) == 15


def test_a_redis_that_forgot_lets_nothing_more_go_through_this_worker() -> None:
    bench = Bench()
    assert bench.go(30) == 30
    bench.redis.flush()
    assert bench.go(30) == 0
    bench.time += 62.0
    assert bench.go(30) == 30


def test_what_went_in_an_outage_still_counts_after_it() -> None:
    bench = Bench()
    bench.redis.away = True
    assert bench.go(30) == 30
    bench.redis.away = False
    bench.time += PAUSE_S * 1.01
    assert bench.go(1) == 0


def test_an_outage_costs_one_question_a_pause() -> None:
    bench = Bench()
    bench.redis.away = True
    for _ in range(20):
        bench.go(1)
    assert len(bench.redis.asked) == 1


# -- others --


def test_the_limits_are_the_adapters() -> None:
    class App(NullChannel):
        receiver_limits: ClassVar[Sequence[tuple[int, int]]] = WECOM

    class Robot(NullChannel):
        silencing_limits: ClassVar[Sequence[tuple[int, int]]] = ((20, 60),)

    one, two = Account("one", "app", "", counted_as="corp-1"), Account("two", "null", "")
    three = Account("three", "robot", "")
    assert limits_of([(one, App()), (two, NullChannel()), (three, Robot())]) == {
        "one": Limited(WECOM, "corp-1", each=True),
        "three": Limited(((20, 60),), "three", each=False),
    }


def test_a_robot_is_counted_under_its_providers_name_whatever_it_is_called_here() -> None:
    bench = Bench()
    batch = [("robot", "group:ops")] * 8 + [("robot", "oc_1")] * 7 + [("same", "group:ops")] * 6
    delays = bench.limits.delays(batch)
    assert delays.count(0) == 20
    assert delays[-1] == 60_000 + SLACK_MS
    bench.time += 62.0
    assert bench.go(25, "same") == 20


def test_accounts_of_one_application_share_what_a_member_may_get() -> None:
    routes = [
        (Account(name, "app", "", counted_as="corp-1"), WecomChannel()) for name in ("one", "two")
    ]
    limits = ReceiverLimits(limits_of(routes), None, workers=lambda _: 1)
    assert limits.delays([("one", "li"), ("two", "li")] * 15) == [0] * 30
    assert limits.delays([("two", "li")]) > [0]
    assert limits.delays([("two", "wang")]) == [0]


def test_those_who_had_to_wait_are_counted() -> None:
    bench = Bench()
    bench.go(33)
    shown = {labels["account"]: value for _, labels, value in bench.limits.readings()}
    assert shown == {"wecom": 3, "fast": 0, "robot": 0, "same": 0}


@pytest.fixture
def shared(redis_url: str) -> Iterator[list[ReceiverLimits]]:
    """Two workers on a real Redis."""
    windows = [RedisWindows(RedisSettings(url=redis_url, timeout_ms=5_000), "a") for _ in "ab"]
    yield [
        ReceiverLimits({"wecom": Limited(WECOM, "wecom")}, w, workers=lambda _: 2) for w in windows
    ]
    for each in windows:
        each.close()


def test_on_a_real_redis_no_more_go_than_the_limit(
    shared: list[ReceiverLimits], redis_url: str
) -> None:
    start, went = threading.Barrier(8), list[int]()

    def run(limits: ReceiverLimits) -> None:
        start.wait()
        for _ in range(5):
            went.append(limits.delays([("wecom", "li")] * 3).count(0))

    threads = [threading.Thread(target=run, args=(shared[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(went) == 30
    with redis.Redis.from_url(redis_url) as raw:
        assert raw.dbsize() == 1
