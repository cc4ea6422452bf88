"""Rates over a fleet: chunks of tokens from Redis, a fair share without it, and no limit overrun."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import pytest

from backends.redis.client import RedisAway
from backends.redis.outage_guard import PAUSE_S
from backends.redis.token_bucket import Ask, Grant, LocalBuckets, RedisBuckets
from backends.settings import RedisSettings
from channels.channel import Account
from deploy.local.stack import Stack
from idempotency.ledger import LedgerUnavailable
from sending.accounts.fleet_size import REFRESH_S, TIDY_S, FleetSize, LimitsMaintenance
from sending.accounts.rate_limiter import UNBOUNDED, RateLimiter
from sending.accounts.token_lease import LEASE_S
from tests.harness.waiting import await_

Private = Callable[..., AbstractContextManager[Stack]]


def account(name: str, rate_per_s: float | None, burst: int | None = None) -> Account:
    return Account(name, "webhook", "http://a", rate_per_s=rate_per_s, burst=burst)


class Redis:
    """The fleet's buckets, that can be away; remembers what it was asked."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.buckets = LocalBuckets(monotonic)
        self.away = False
        self.asked: list[list[Ask]] = []

    def take(self, asks: Sequence[Ask]) -> list[Grant]:
        self.asked.append(list(asks))
        if self.away:
            raise RedisAway("connection refused")
        return self.buckets.take(asks)

    def level(self, name: str, rate: float, burst: int) -> int:
        """Whole tokens that anybody else would get now."""
        (grant,) = self.buckets.take([Ask(name, rate, burst, burst, 0)])
        self.buckets.take([Ask(name, rate, burst, 0, 0, grant.tokens)])
        return grant.tokens


class Bench:
    """Workers of one fleet whose time is moved by hand."""

    def __init__(self, *accounts: Account, workers: int = 1, shared: bool = True) -> None:
        self.time = 100.0
        self.redis = Redis(lambda: self.time)
        self.living = workers
        self.workers = [
            RateLimiter(
                accounts,
                self.redis if shared else None,
                workers=lambda _name: self.living,
                monotonic=lambda: self.time,
            )
            for _ in range(workers)
        ]
        self.rates = self.workers[0]

    def drain(self, name: str = "a", rates: RateLimiter | None = None) -> int:
        """Use everything that may be used now."""
        rates, used = rates or self.rates, 0
        while rates.rooms([name])[0]:
            used += rates.take(name)
        return used

    def run(self, seconds: float, step_s: float = 0.02) -> list[int]:
        """Let every worker use what it can for a while; how many each used."""
        used, end = [0] * len(self.workers), self.time + seconds
        while self.time < end - 1e-9:
            self.time += step_s
            for number, rates in enumerate(self.workers):
                used[number] += self.drain(rates=rates)
        return used


# -- one worker --


def test_an_account_without_a_rate_asks_nobody_and_may_always_send() -> None:
    bench = Bench(account("a", None))
    assert bench.rates.rooms(["a"]) == [UNBOUNDED]
    assert all(bench.rates.take("a") for _ in range(1_000))
    bench.rates.give_back("a")
    bench.rates.tidy()
    bench.rates.close()
    assert (bench.rates.wait_s("a"), bench.redis.asked) == (0.0, [])
    assert {r.family.name for r in bench.rates.readings()} == {"hongyan_paced_total"}


def test_tokens_come_in_chunks_and_not_one_by_one() -> None:
    bench = Bench(account("a", 1_000.0))
    assert bench.rates.rooms(["a"]) == [100]
    assert all(bench.rates.take("a") for _ in range(100))
    assert len(bench.redis.asked) == 1


def test_nothing_is_taken_that_was_not_fetched() -> None:
    assert not Bench(account("a", 10.0)).rates.take("a")


def test_a_burst_comes_in_few_chunks_even_at_a_low_rate() -> None:
    bench = Bench(account("a", 1.0, burst=1_000))
    assert bench.drain() == 1_000 + 0
    assert len(bench.redis.asked) <= 12


def test_all_accounts_of_a_lane_are_asked_for_at_once() -> None:
    bench = Bench(account("a", 100.0), account("b", 50.0), account("c", None))
    assert bench.rates.rooms(["a", "b", "c"]) == [10, 5, UNBOUNDED]
    assert [[ask.name for ask in asks] for asks in bench.redis.asked] == [["a", "b"]]


def test_a_worker_told_to_wait_asks_no_more_until_then() -> None:
    bench = Bench(account("a", 10.0, burst=10))
    assert bench.drain() == 10
    asked = len(bench.redis.asked)
    assert bench.rates.wait_s("a") == pytest.approx(0.1)
    for _ in range(50):
        assert bench.rates.rooms(["a"]) == [0]
        assert not bench.rates.take("a")
    assert len(bench.redis.asked) == asked
    bench.time += 0.1001
    assert bench.drain() == 1


def test_a_promise_is_not_used_before_its_time() -> None:
    bench = Bench(account("a", 0.1, burst=1))
    assert bench.drain() == 1
    bench.time += 9.9
    assert bench.drain() == 0
    bench.time += 0.2
    assert bench.drain() == 1


def test_over_a_long_time_exactly_the_rate_goes() -> None:
    bench = Bench(account("a", 50.0, burst=5))
    (used,) = bench.run(60.0)
    assert 50 * 60 * 0.98 <= used <= 50 * 60 + 5


# -- what is not used --


def test_what_is_held_too_long_goes_back_to_the_others() -> None:
    bench = Bench(account("a", 100.0))
    bench.rates.rooms(["a"])
    assert bench.redis.level("a", 100.0, 100) == 90
    bench.time += LEASE_S * 1.01
    assert not bench.rates.take("a"), "it would come on top of what the bucket gained"
    bench.rates.tidy()
    assert bench.redis.level("a", 100.0, 100) == 100


def test_an_unused_promise_goes_back_too() -> None:
    bench = Bench(account("a", 0.1, burst=1))
    bench.drain()
    bench.time += 10.0 + LEASE_S * 1.01
    bench.rates.tidy()
    assert bench.redis.level("a", 0.1, 1) == 1


def test_what_was_taken_and_not_sent_can_be_taken_again() -> None:
    bench = Bench(account("a", 0.01, burst=3))
    assert bench.drain() == 3
    bench.rates.give_back("a", 2)
    assert bench.drain() == 2
    assert bench.drain() == 0


def test_a_worker_that_ends_gives_everything_back() -> None:
    bench = Bench(account("a", 100.0), account("b", 10.0))
    bench.rates.rooms(["a", "b"])
    bench.rates.take("a")
    bench.rates.close()
    bench.rates.close()
    assert bench.redis.level("a", 100.0, 100) == 99
    assert bench.redis.level("b", 10.0, 10) == 10
    assert not bench.rates.take("a")


# -- several workers --


def test_what_a_fleet_may_hold_is_divided_by_its_workers() -> None:
    bench = Bench(account("a", 1_000.0), workers=4)
    assert [rates.rooms(["a"])[0] for rates in bench.workers] == [25] * 4


def test_workers_get_the_same_and_together_the_rate() -> None:
    bench = Bench(account("a", 100.0, burst=10), workers=4)
    used = bench.run(30.0)
    assert 100 * 30 * 0.97 <= sum(used) <= 100 * 30 + 10 + 4
    assert max(used) <= 1.1 * min(used)


def test_a_worker_alone_with_work_gets_it_all() -> None:
    bench = Bench(account("a", 100.0, burst=10), workers=4)
    bench.workers = bench.workers[:1]
    (used,) = bench.run(30.0, step_s=0.005)
    assert used >= 100 * 30 * 0.9


# -- without Redis --


def test_without_redis_each_worker_keeps_to_its_share() -> None:
    bench = Bench(account("a", 100.0, burst=40), workers=4, shared=False)
    used = bench.run(30.0)
    assert max(used) <= 25 * 30 + 10 + 1
    assert min(used) >= 25 * 30 * 0.95
    assert bench.redis.asked == []


def test_even_a_share_below_one_is_a_share() -> None:
    bench = Bench(account("a", 1.0, burst=1), workers=5, shared=False)
    used = bench.run(100.0)
    assert all(18 <= mine <= 22 for mine in used)


def test_an_outage_goes_on_at_the_same_rate_and_begins_with_no_second_burst() -> None:
    bench = Bench(account("a", 100.0, burst=100), workers=4)
    before = sum(bench.run(10.0))
    bench.redis.away = True
    during = sum(bench.run(20.0))
    assert before <= 100 * 10 + 100
    assert 100 * 20 * 0.9 <= during <= 100 * 20 + 4 + 100 * 0.1


def test_an_outage_ends_with_no_second_burst() -> None:
    bench = Bench(account("a", 100.0, burst=100), workers=4)
    bench.run(10.0)
    bench.redis.away = True
    bench.run(20.0)
    bench.redis.away = False
    after = sum(bench.run(10.0))
    assert all(rates.shared for rates in bench.workers)
    assert 100 * 10 * 0.9 <= after <= 100 * 10 + 100 * 0.5


def test_who_sees_redis_first_keeps_to_its_share_until_the_others_see_it_too() -> None:
    bench = Bench(account("a", 100.0, burst=20), workers=4)
    bench.run(5.0)
    bench.redis.away = True
    for rates in bench.workers:
        bench.time += PAUSE_S / 4  # so that they look for Redis one after the other
        bench.drain(rates=rates)
    bench.run(5.0)
    bench.redis.away = False
    used = bench.run(PAUSE_S)
    assert max(used) <= 25 * PAUSE_S + 3, used
    assert not any(rates.shared for rates in bench.workers)


def test_while_redis_is_away_it_is_asked_once_a_pause() -> None:
    bench = Bench(account("a", 100.0))
    bench.redis.away = True
    bench.run(5.0)
    assert len(bench.redis.asked) <= 6


def test_when_redis_was_away_from_the_start_the_share_is_there_at_once() -> None:
    bench = Bench(account("a", 100.0, burst=100), workers=4)
    bench.redis.away = True
    assert bench.drain() == 25


def test_readings_tell_who_decides_and_how_many_share() -> None:
    bench = Bench(account("a", 100.0), account("b", None), workers=2)
    bench.rates.rooms(["a", "b"])
    shown = {(r.family.name, r.labels.get("account")): r.value for r in bench.rates.readings()}
    assert shown == {
        ("hongyan_paced_total", "a"): 0,
        ("hongyan_paced_total", "b"): 0,
        ("hongyan_rate_per_s", "a"): 100.0,
        ("hongyan_rate_shut_seconds", "a"): 0.0,
        ("hongyan_rates_shared", None): 1,
        ("hongyan_rate_tokens", "a"): 5,
        ("hongyan_rate_workers", "a"): 2,
    }


def shared_readings(rates: RateLimiter) -> list[float]:
    return [r.value for r in rates.readings() if r.family.name == "hongyan_rates_shared"]


def test_without_redis_no_reading_says_that_it_is_away() -> None:
    bench = Bench(account("a", 100.0), shared=False)
    bench.drain()
    bench.rates.tidy()
    assert shared_readings(bench.rates) == []


def test_who_decides_is_told_from_the_first_answer_on() -> None:
    bench = Bench(account("a", 100.0))
    bench.rates.tidy()
    assert shared_readings(bench.rates) == []
    bench.drain()
    assert shared_readings(bench.rates) == [1]


def test_who_decides_is_told_from_the_first_failure_on() -> None:
    bench = Bench(account("a", 100.0))
    bench.redis.away = True
    bench.drain()
    assert shared_readings(bench.rates) == [0]


def test_redis_is_seen_again_also_while_nothing_is_sent() -> None:
    bench = Bench(account("a", 100.0))
    bench.redis.away = True
    bench.drain()
    bench.time += LEASE_S
    bench.rates.tidy()
    bench.redis.away = False
    for _ in range(6):
        bench.time += TIDY_S
        bench.rates.tidy()
    assert shared_readings(bench.rates) == [1]
    asked = len(bench.redis.asked)
    bench.rates.tidy()
    assert len(bench.redis.asked) == asked, "nobody asks on"


# -- threads --


def test_of_many_threads_each_token_serves_one() -> None:
    bench = Bench(account("a", 0.01, burst=200))
    start, used = threading.Barrier(8), list[int]()

    def run() -> None:
        start.wait()
        used.append(bench.drain())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(used) == 200


# -- who lives --


class Ledger:
    def __init__(self, *lanes: set[str]) -> None:
        self.lanes = [frozenset(names) for names in lanes]
        self.away = False

    def sending_lanes(self) -> list[frozenset[str]]:
        if self.away:
            raise LedgerUnavailable("away")
        return self.lanes


def test_an_account_is_shared_by_those_who_serve_one_of_its_lanes() -> None:
    ledger = Ledger({"sms.notice"}, {"sms.verification", "email.notice"}, {"email.notice"})
    fleet = FleetSize(
        ledger, {"aliyun": ["sms.notice", "sms.verification"], "smtp": ["email.notice"]}
    )
    assert fleet.workers("aliyun") == 1, "before any count"
    fleet.refresh()
    assert (fleet.workers("aliyun"), fleet.workers("smtp")) == (2, 2)


def test_while_the_ledger_is_away_the_last_count_stands() -> None:
    ledger = Ledger({"sms.notice"}, {"sms.notice"})
    fleet = FleetSize(ledger, {"aliyun": ["sms.notice"]})
    fleet.refresh()
    ledger.away = True
    fleet.refresh()
    assert fleet.workers("aliyun") == 2


def test_a_worker_counts_itself_though_the_ledger_knows_nobody() -> None:
    fleet = FleetSize(Ledger(), {"aliyun": ["sms.notice"]})
    fleet.refresh()
    assert fleet.workers("aliyun") == 1


def test_upkeep_tidies_until_it_is_stopped_and_then_gives_back() -> None:
    tidied, told = threading.Event(), list[str]()
    upkeep = LimitsMaintenance(lambda: None, tidied.set, lambda: told.append("closed"))
    thread = threading.Thread(target=upkeep.run)
    thread.start()
    assert tidied.wait(30)
    assert told == []
    upkeep.stop()
    upkeep.stop()
    thread.join(30)
    assert told == ["closed"]


def test_the_fleet_is_counted_in_time_however_often_the_bell_rings() -> None:
    """Each refusal rings it, the stray ones of a busy account, too."""
    now, bell, counted_at = 1_000.0, threading.Event(), list[float]()

    def tidy() -> None:
        nonlocal now
        now += 0.25
        bell.set()
        if now >= 1_000 + 4 * REFRESH_S:
            upkeep.stop()

    upkeep = LimitsMaintenance(
        lambda: counted_at.append(now), tidy, lambda: None, bell, monotonic=lambda: now
    )
    bell.set()
    upkeep.run()
    assert counted_at == [1_000 + n * REFRESH_S for n in (1, 2, 3, 4)]


def test_upkeep_stopped_before_it_began_ends_at_once() -> None:
    told: list[str] = []
    upkeep = LimitsMaintenance(lambda: None, lambda: None, lambda: told.append("closed"))
    upkeep.stop()
    upkeep.run()
    assert told == ["closed"]


# -- real processes on a real Redis --

RATE, BURST, WORKERS = 200.0, 20, 3


def send(url: str, together: Barrier, stop: Event, told: Queue[Any]) -> None:
    """One worker with more work than the rate allows; tells when it sent each."""
    buckets = RedisBuckets(RedisSettings(url=url, timeout_ms=500), "fleet")
    rates = RateLimiter([account("main", RATE, BURST)], buckets, workers=lambda _: WORKERS)
    sent: list[float] = []
    together.wait()
    while not stop.wait(rates.wait_s("main")):
        if rates.rooms(["main"])[0] and rates.take("main"):
            sent.append(time.monotonic())
    rates.close()
    told.put(sent)


class Senders:
    """Worker processes that send until they are stopped."""

    def __init__(self, url: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        together, self._told = spawn.Barrier(WORKERS + 1), spawn.Queue()
        self._stop = spawn.Event()
        arguments = (url, together, self._stop, self._told)
        self._processes = [spawn.Process(target=send, args=arguments) for _ in range(WORKERS)]
        for process in self._processes:
            process.start()
        together.wait(60)
        self.begun = time.monotonic()

    def run_until(self, moment: float) -> None:
        await_(lambda: time.monotonic() >= moment, what="the time is over")

    def stop(self) -> list[list[float]]:
        """When each worker sent each of its deliveries, monotonic."""
        self._stop.set()
        sent = [self._told.get(timeout=60) for _ in self._processes]
        for process in self._processes:
            process.join()
        return sent


def within(times: Sequence[float], begin: float, end: float) -> int:
    return sum(begin <= at < end for at in times)


@pytest.mark.soak(small="::test_workers_get_the_same_and_together_the_rate")
def test_processes_together_keep_to_the_rate_and_none_starves(redis_url: str) -> None:
    senders = Senders(redis_url)
    senders.run_until(senders.begun + 3.0)
    sent = senders.stop()
    every = sorted(at for mine in sent for at in mine)
    lasted = every[-1] - senders.begun
    held = RATE * 0.1 + WORKERS
    assert len(every) <= BURST + RATE * lasted + held
    assert len(every) >= 0.7 * RATE * lasted
    assert min(map(len, sent)) >= 0.15 * len(every), [len(mine) for mine in sent]
    for begin in every[:: len(every) // 50]:
        assert within(every, begin, begin + 0.5) <= BURST + RATE * 0.5 + held


@pytest.mark.timeout(240)
@pytest.mark.soak(small="::test_an_outage_ends_with_no_second_burst")
def test_redis_killed_in_between_neither_stops_the_fleet_nor_lets_it_overrun(
    private_stack: Private,
) -> None:
    with private_stack(only=["redis"]) as stack:
        senders = Senders(stack.redis_url)
        senders.run_until(senders.begun + 2.0)
        stack.kill("redis")
        killed = time.monotonic()
        senders.run_until(killed + 3.0)
        stack.start("redis")
        back = time.monotonic()
        senders.run_until(back + 4.0)
        sent = senders.stop()
    every = sorted(at for mine in sent for at in mine)
    lasted = every[-1] - senders.begun
    assert len(every) <= 2 * BURST + RATE * lasted + RATE * 0.1 + WORKERS
    for mine in sent:
        share = RATE / WORKERS * (back - killed)
        assert within(mine, killed, back) >= 0.5 * share, "it stood still while Redis was away"
        assert within(mine, back + 2.0, back + 4.0) > 0, "it stood still when Redis came back"
