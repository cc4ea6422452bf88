"""One robot under two names: its limits are the robot's, and a silence of known length is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from backends.metrics import worker_families
from backends.redis.client import connect
from backends.redis.paces import LocalPaces, RedisPaces
from backends.redis.token_bucket import LocalBuckets, RedisBuckets
from backends.settings import RedisSettings
from channels.channel import Account, Call
from channels.providers.dingtalk.robot import DingTalkRobotChannel
from channels.registry import PROVIDERS, AccountError, load_accounts
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification
from message.outcomes import AnyOutcome
from message.vocabulary import Lane
from policy.schema import LanePolicy
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.receiver_limits import ReceiverLimits, limits_of
from sending.accounts.selector import AccountSelector

LANE = Lane("dingtalk", "notice")
ROBOT = {"provider": "dingtalk_robot", "access_token": "t", "group": "ops"}
SILENT = b'{"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"}'
THROTTLED = b'{"status": 1111, "wait": 5, "source": "x5", "punish": "deny"}'


def robots() -> dict[str, Account]:
    return load_accounts(
        {"one": ROBOT, "same": ROBOT, "other": {**ROBOT, "access_token": "another"}}
    )


def delivery(receiver: str = "group:ops") -> Delivery:
    notification = Notification(
        id="n",
        channel="dingtalk",
        kind="notice",
        receivers=[receiver],
        content={"text": "x"},
        created_at=1,
    )
    return deliveries_of(notification, b"", expires_at=2)[0]


def answered(account: Account, body: bytes) -> list[AnyOutcome]:
    """What the adapter makes of DingTalk's own words."""
    import httpx

    call = Call(account, [delivery()])
    return DingTalkRobotChannel().outcomes(call, httpx.Response(200, content=body))


class Lanes:
    """Two processes, each with one lane's accounts; time is moved by hand."""

    def __init__(self, workers: int = 2) -> None:
        self.time = 1_000.0
        self.of = robots()
        buckets, paces = LocalBuckets(self.clock), LocalPaces(self.clock)
        self.rates = [
            RateLimiter(
                self.of.values(),
                buckets,
                workers=lambda _: workers,
                monotonic=self.clock,
                paces=paces,
            )
            for _ in range(workers)
        ]
        policy = LanePolicy()
        some = list(self.of.values())
        self.accounts = [
            AccountSelector(LANE, policy, some, rates, monotonic=self.clock) for rates in self.rates
        ]

    def clock(self) -> float:
        return self.time

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.time += 0.5
            for rates in self.rates:
                rates.tidy()

    def refuse(self, worker: int, name: str, body: bytes) -> None:
        account = self.of[name]
        self.accounts[worker].record(account, answered(account, body), self.time)

    def chosen(self, worker: int) -> set[str]:
        found = set()
        for _ in range(6):
            account = self.accounts[worker].choose(delivery())
            if account is not None:
                self.accounts[worker].release(account)
                found.add(account.name)
        return found


def test_a_robot_that_was_silenced_is_left_alone_for_ten_minutes_under_each_of_its_names() -> None:
    lanes = Lanes()
    assert lanes.chosen(0) == lanes.chosen(1) == {"one", "same", "other"}
    lanes.refuse(0, "one", SILENT)
    lanes.pass_s(1)
    for _ in range(119):  # ten minutes, looked at every five seconds
        assert lanes.chosen(0) == lanes.chosen(1) == {"other"}
        lanes.pass_s(5)
    lanes.pass_s(10)
    assert {"one", "same"} & (lanes.chosen(0) | lanes.chosen(1))


def test_a_shorter_refusal_meanwhile_ends_no_silence() -> None:
    lanes = Lanes()
    lanes.refuse(0, "one", SILENT)
    lanes.time += 0.2  # the other worker has not heard of it yet
    lanes.refuse(1, "same", THROTTLED)
    lanes.pass_s(300)
    assert lanes.chosen(0) == lanes.chosen(1) == {"other"}


def test_a_silence_opens_no_breaker_that_would_probe_it() -> None:
    lanes = Lanes()
    for _ in range(50):
        lanes.refuse(0, "one", SILENT)
    states = {
        labels["account"]: value
        for family, labels, value in lanes.accounts[0].readings()
        if family is worker_families.BREAKER_STATE
    }
    assert set(states.values()) == {0.0}


@pytest.mark.parametrize("provider", ["wecom_robot", "dingtalk_robot", "feishu_robot"])
def test_every_robots_limit_is_one_for_all_of_its_names(provider: str) -> None:
    channel = PROVIDERS[provider]
    most, seconds = max(channel.silencing_limits, key=lambda one: one[1])
    every = [
        Account(name, provider, "", counted_as=counted)
        for name, counted in (("one", "r1"), ("same", "r1"), ("other", "r2"))
    ]
    time = 0.0
    limits = ReceiverLimits(
        limits_of((account, channel) for account in every),
        None,
        workers=lambda _: 1,
        monotonic=lambda: time,
    )
    went = 0
    for number in range(10 * most):
        time += seconds / (10 * most)
        pairs = [("one", f"group:{number}"), ("same", "group:ops")]
        went += limits.delays(pairs).count(0)
    assert went == most
    assert limits.delays([("other", "group:ops")]) == [0]


@pytest.fixture(params=["redis", "local"])
def buckets(request: pytest.FixtureRequest) -> Iterator[Callable[[], RedisBuckets | None]]:
    if request.param == "local":
        yield lambda: None
        return
    settings = RedisSettings(url=request.getfixturevalue("redis_url"), timeout_ms=5_000)
    made: list[RedisBuckets] = []

    def opened() -> RedisBuckets:
        made.append(RedisBuckets(settings, "ledger-a"))
        return made[-1]

    yield opened
    for one in made:
        one.close()


def test_accounts_of_one_login_share_the_rate_that_its_provider_documents(
    buckets: Callable[[], RedisBuckets | None],
) -> None:
    table = {"provider": "feishu", "app_id": "a", "app_secret": "s"}
    accounts = load_accounts({"one": table, "same": table, "other": {**table, "app_id": "b"}})
    rates = RateLimiter(accounts.values(), buckets(), workers=lambda _: 1, monotonic=lambda: 1.0)

    def used(*names: str) -> int:
        count = 0
        for _ in range(50):
            for name in names:
                rates.rooms([name])
                count += rates.take(name)
        return count

    together, alone = used("one", "same"), used("other")
    assert together <= 5, "a tenth of the 50 a second that Feishu takes, whatever the accounts"
    assert alone == together


def test_a_rate_of_its_own_is_the_accounts() -> None:
    table = {"provider": "feishu", "app_id": "a", "app_secret": "s", "rate_per_s": 4}
    accounts = load_accounts({"one": table, "same": table})
    assert {account.bucket for account in accounts.values()} == {""}
    rates = RateLimiter(accounts.values(), None, workers=lambda _: 1, monotonic=lambda: 1.0)
    taken = {"one": 0, "same": 0}
    for name in [*taken] * 9:
        rates.rooms([name])
        taken[name] += rates.take(name)
    assert taken == {"one": 4, "same": 4}


@pytest.mark.parametrize(("rate", "limited"), [(None, True), (0.1, True), (0.33, True), (5, False)])
def test_only_a_rate_above_the_documented_one_lifts_a_robots_limit(
    rate: float | None, limited: bool
) -> None:
    own = {} if rate is None else {"rate_per_s": rate}
    accounts = load_accounts({"robot": {**ROBOT, **own}})
    found = limits_of([(accounts["robot"], PROVIDERS["dingtalk_robot"])])
    assert ("robot" in found) is limited


def test_one_robot_in_two_groups_is_refused() -> None:
    with pytest.raises(AccountError, match=r"accounts\.b\.group: a is the same robot"):
        load_accounts({"a": ROBOT, "b": {**ROBOT, "group": "sales"}})
    assert len(load_accounts({"a": ROBOT, "b": ROBOT})) == 2


def test_the_fleet_hears_of_a_silence_under_the_robots_name(redis_url: str) -> None:
    settings = RedisSettings(url=redis_url, timeout_ms=5_000)
    of = robots()
    every = [(RedisBuckets(settings, "l"), RedisPaces(settings, "l")) for _ in range(2)]
    try:
        here, there = (
            RateLimiter(of.values(), buckets, workers=lambda _: 2, paces=paces)
            for buckets, paces in every
        )
        here.refused("one", 600_000, None)
        here.tidy()
        there.tidy()
        assert there.shut_s("same") > 590
        assert there.shut_s("other") == 0
        names = " ".join(map(str, connect(settings).keys("hongyan:l:rate:*")))
        assert names.count("rate:") == 1, "one bucket"
        assert of["one"].counted_as in names
    finally:
        for one in every:
            for each in one:
                each.close()
