"""Rates, receivers' limits and accounts as a worker opens them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import pytest
import redis

from backends.settings import RedisSettings, Settings, SettingsError
from channels.channel import Account, Channel
from channels.providers.null import NullChannel
from message.delivery import deliveries_of
from message.vocabulary import Lane
from policy.schema import Policy
from sending.accounts.limits import SendLimits, open_quotas
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import notification

NOTICE, MARKETING, MAIL = (
    Lane("webhook", "notice"),
    Lane("webhook", "marketing"),
    Lane("email", "notice"),
)


class Limited(NullChannel):
    receiver_limits: ClassVar[Sequence[tuple[int, int]]] = ((2, 60),)


MAIN: tuple[Account, Channel] = Account("main", "null", "", rate_per_s=0.1, burst=40), Limited()
SMTP: tuple[Account, Channel] = Account("smtp", "null", ""), NullChannel()
ROUTES = {
    NOTICE: {"main": Route(*MAIN)},
    MARKETING: {"main": Route(*MAIN)},
    MAIL: {"smtp": Route(*SMTP)},
}


class Ledger:
    def sending_lanes(self) -> list[frozenset[str]]:
        return [frozenset({NOTICE.name}), frozenset({MARKETING.name}), frozenset({MAIL.name})]


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(held: ExitStack, url: str = "") -> SendLimits:
    settings = Settings(redis=RedisSettings(url=url, timeout_ms=5_000))
    return open_quotas(settings, Policy(), ROUTES, Ledger(), "ledger-a", Clock(), held)


def made_long_ago(url: str) -> None:
    """The fleet's buckets are full."""
    with redis.Redis.from_url(url) as raw:
        raw.hset("hongyan:ledger-a:rate:main", mapping={"level": "1000", "at": "0"})


def used(send_limits: SendLimits, lane: Lane) -> int:
    delivery, count = deliveries_of(notification(), b"", expires_at=0)[0], 0
    while send_limits.accounts[lane.name].choose(delivery) is not None:
        count += 1
    return count


def test_without_redis_the_share_is_by_those_who_serve_the_accounts_lanes(held: ExitStack) -> None:
    send_limits = opened(held)
    assert used(send_limits, NOTICE) == 20
    assert used(send_limits, MARKETING) == 0, "one account, one rate, whatever the lane"
    assert send_limits.receivers.delays([("main", "li"), ("smtp", "li")]) == [0, 0]
    assert send_limits.receivers.delays([("main", "li")]) != [0]


def test_with_redis_several_workers_use_one_rate_and_one_limit(
    held: ExitStack, redis_url: str
) -> None:
    made_long_ago(redis_url)
    one, two = opened(held, redis_url), opened(held, redis_url)
    assert used(one, NOTICE) + used(two, MARKETING) == 40
    assert [q.receivers.delays([("main", "li")]) for q in (one, two)] == [[0], [0]]
    assert one.receivers.delays([("main", "li")]) != [0]


def test_what_a_stopped_worker_held_goes_to_the_others(held: ExitStack, redis_url: str) -> None:
    made_long_ago(redis_url)
    one, two = opened(held, redis_url), opened(held, redis_url)
    assert one.rates.rooms(["main"]) == [2]
    one.upkeep.stop()
    one.upkeep.run()
    assert used(two, NOTICE) == 40


def test_every_lane_and_account_is_shown(held: ExitStack) -> None:
    send_limits = opened(held)
    used(send_limits, NOTICE)
    shown = {
        (one.family.name, one.labels.get("lane"), one.labels.get("account"))
        for one in send_limits.readings()
    }
    assert ("hongyan_breaker_state", NOTICE.name, "main") in shown
    assert ("hongyan_breaker_state", MAIL.name, "smtp") in shown
    assert {
        ("hongyan_rate_workers", None, "main"),
        ("hongyan_receivers_held_total", None, "main"),
    } <= shown
    assert ("hongyan_rate_tokens", None, "smtp") not in shown


def test_a_redis_url_that_cannot_be_read_is_refused_without_showing_it(held: ExitStack) -> None:
    with pytest.raises(SettingsError) as caught:
        opened(held, "http://user:s3cret@host")
    assert "s3cret" not in str(caught.value)
