"""Few refusals beside much that goes well slow nobody. A limit does, and a provider that names a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from backends.redis.paces import LocalPaces, Pace, Refusal
from channels.channel import Account
from sending.accounts.paces import AccountPaces, Meter
from sending.accounts.rate_limiter import RateLimiter


class Traffic:
    """One account whose time is moved by hand; a tick each half second, as the upkeep thread makes it."""

    def __init__(self) -> None:
        self.time = 100.0
        self.pace: Pace | None = None
        self.paces = AccountPaces(
            None, workers=lambda _: 1, apply=self._apply, monotonic=lambda: self.time
        )
        self.paces.serve([Account("a", "webhook", "http://a")])

    def run(self, seconds: float, taken: int, refused: int, wait_ms: int = 0) -> None:
        """So many calls of each kind every half second; the refused ones last."""
        for _ in range(int(2 * seconds)):
            self.time += 0.5
            self.paces.meter("a").total += taken
            for _ in range(refused):
                self.paces.refused("a", wait_ms, self.time)
            self.paces.tick()

    def _apply(self, _account: str, pace: Pace | None) -> None:
        self.pace = pace


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


def test_few_refusals_that_name_no_time_slow_nobody(traffic: Traffic) -> None:
    traffic.run(seconds=30, taken=19, refused=1)
    assert traffic.pace is None
    assert traffic.paces.refusals == {"a": 60}


@pytest.mark.parametrize(
    ("taken", "refused", "slows"),
    [(0, 2, False), (0, 3, True), (7, 3, False), (6, 4, True), (22, 3, False), (20, 10, True)],
)
def test_the_first_calls_of_a_process_slow_it_where_chance_does_not_refuse_so_many(
    traffic: Traffic, taken: int, refused: int, slows: bool
) -> None:
    traffic.run(seconds=0.5, taken=taken, refused=refused)
    assert (traffic.pace is not None) == slows


def test_more_than_a_tenth_of_the_calls_refused_is_a_limit(traffic: Traffic) -> None:
    traffic.run(seconds=10, taken=20, refused=0)
    traffic.run(seconds=10, taken=20, refused=4)
    assert traffic.pace is not None
    assert traffic.pace.rate_per_s <= 40


def test_a_provider_that_refuses_everything_is_noticed_at_once(traffic: Traffic) -> None:
    traffic.run(seconds=10, taken=100, refused=0)
    traffic.run(seconds=1, taken=0, refused=2)
    assert traffic.pace is not None


def test_one_refusal_after_a_pause_slows_nobody(traffic: Traffic) -> None:
    traffic.run(seconds=60, taken=0, refused=0)
    traffic.run(seconds=0.5, taken=1, refused=1)
    assert traffic.pace is None


def test_a_rate_that_nobody_refuses_any_more_is_soon_none(traffic: Traffic) -> None:
    traffic.run(seconds=1, taken=2, refused=8)
    traffic.run(seconds=25, taken=2, refused=0)
    assert traffic.pace is not None
    assert traffic.pace.rate_per_s > 100


def test_a_refusal_that_names_a_time_counts_however_few_there_are(traffic: Traffic) -> None:
    traffic.run(seconds=10, taken=100, refused=0)
    traffic.run(seconds=0.5, taken=100, refused=1, wait_ms=1_000)
    assert traffic.pace is not None
    assert traffic.pace.shut_ms > 0


class Interrupted(float):
    """A moment at which another thread marks the meter, whenever somebody reckons with it."""

    meter: Meter

    def __sub__(self, other: float) -> float:
        self.meter.mark(float(self))
        return float(self) - other


def test_a_mark_may_come_while_another_thread_reads() -> None:
    meter = Meter(0.0)
    for second in range(1, 6):
        meter.total += 10
        meter.mark(float(second))
    now = Interrupted(5.5)
    now.meter = meter
    assert meter.per_s(now) > 0
    assert meter.is_stray(now)


class Adding:
    """A fleet that nobody slows. Another policy brings a second account while it is asked or told."""

    def __init__(self) -> None:
        self.limiter: RateLimiter | None = None

    def paces(self, keys: Sequence[str]) -> list[Pace | None]:
        self._add()
        return [None] * len(keys)

    def refused(self, _refusal: Refusal) -> Pace:
        self._add()
        return Pace(1.0, 0)

    def _add(self) -> None:
        if self.limiter is not None:
            self.limiter.serve(
                [Account("a", "webhook", "http://a"), Account("b", "smtp", "smtp://b")]
            )


@pytest.mark.parametrize("refused", [False, True])
def test_an_account_may_be_added_while_the_fleet_is_asked(refused: bool) -> None:
    fleet = Adding()
    limiter = RateLimiter(
        [Account("a", "webhook", "http://a")], None, workers=lambda _: 1, paces=fleet
    )
    fleet.limiter = limiter
    if refused:
        limiter.refused("a", 1_000, None)
    limiter.tidy()
    limiter.tidy()
    assert limiter.limits("a") == refused
    assert not limiter.limits("b")


class SlowLock:
    """A lock; whoever waits for it lets `meanwhile` happen first."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._meanwhile: Callable[[], None] | None = meanwhile

    def __enter__(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_an_account_that_is_shut_since_before_may_be_added_beside_the_upkeep_thread() -> None:
    paces = LocalPaces(time.monotonic)
    limiter = RateLimiter([], None, workers=lambda _: 1, paces=paces)
    account = Account("a", "webhook", "http://a")
    paces.refused(Refusal(account.counted, 60_000, 0, 1.0))
    limiter._lock = SlowLock(limiter.tidy)  # type: ignore[assignment]
    limiter.serve([account])
    limiter.tidy()
    assert limiter.shut_s("a") > 0
