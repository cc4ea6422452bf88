"""A login that a provider refuses in the answer to a call.

One refusal for the whole fleet, no attempt spent, and an alert that says what to check. Logins by access
token: tests/channels/tokens/test_shared.py.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx
from structlog.testing import capture_logs

from backends.redis.paces import LocalPaces, RedisPaces
from backends.redis.token_bucket import RedisBuckets
from backends.settings import RedisSettings
from channels.channel import Account, Call
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.aliyun_sms.adapter import AliyunSms
from channels.registry import load_accounts
from channels.transports import TransportRouter
from dispatcher.wiring import login_readings
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import Accepted, AnyOutcome, is_paced
from message.vocabulary import Lane
from policy.schema import LanePolicy
from sending.accounts.paces import LATE_MS, LOGIN_MS
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from tests.conformance.samples import sample

LANE = Lane("sms", "notice")
WRONG = httpx.Response(
    400, content=b'{"Code":"SignatureDoesNotMatch","Message":"Specified signature is not matched"}'
)


def aliyun(secret: str = "wrong") -> dict[str, str | int]:
    of = sample("aliyun_sms")
    assert of is not None
    return {**of.account_table, "endpoint": "http://127.0.0.1", "access_key_secret": secret}


def delivery(account: str | None = None) -> Delivery:
    notification = Notification(
        id="n",
        channel="sms",
        kind="notice",
        receivers=["+8613800000001"],
        template=Template("SMS_1", {"code": "1"}),
        account=account,
        created_at=1,
    )
    return deliveries_of(notification, b"", expires_at=2)[0]


def refused(account: Account) -> list[AnyOutcome]:
    """What the adapter makes of Aliyun's own words."""
    return AliyunSms().outcomes(Call(account, [delivery()]), WRONG)


class Fleet:
    """Workers of one lane with two logins of one key, one of them wrong. Time is moved by hand."""

    def __init__(self, workers: int) -> None:
        self.time = 1_000.0
        self.calls: dict[str, int] = {"wrong": 0, "right": 0}
        self.of = load_accounts({"wrong": aliyun(), "right": aliyun("simulator-secret")})
        shared = LocalPaces(self._now)
        self.rates = [
            RateLimiter(
                self.of.values(), None, workers=lambda _: workers, monotonic=self._now, paces=shared
            )
            for _ in range(workers)
        ]
        every = list(self.of.values())
        self.workers = [
            AccountSelector(LANE, LanePolicy(), every, rates, monotonic=self._now)
            for rates in self.rates
        ]

    def _now(self) -> float:
        return self.time

    def run(self, seconds: int, answer: Callable[[Account], list[AnyOutcome]]) -> None:
        """Each worker would call each account once a second, and each call takes that second."""
        for _ in range(seconds):
            begun_at = self.time
            going = [(n, one) for n in range(len(self.workers)) for one in self._chosen(n)]
            self.time += 1
            for number, account in going:
                self.calls[account.name] += 1
                self.workers[number].record(account, answer(account), begun_at)
            for rates in self.rates:
                rates.tidy()
            for rates in self.rates:
                rates.tidy()  # what the others told meanwhile

    def _chosen(self, number: int) -> list[Account]:
        chosen = [self.workers[number].choose(delivery(name)) for name in self.of]
        return [one for one in chosen if one is not None]


def answer(account: Account) -> list[AnyOutcome]:
    return refused(account) if account.name == "wrong" else [Accepted("1")]


def test_six_workers_ask_about_once_a_minute_and_the_other_login_goes_on() -> None:
    fleet = Fleet(workers=6)
    fleet.run(600, answer)
    assert 8 <= fleet.calls["wrong"] <= 6 + 9 * 3, "at first each of them, then one or two a minute"
    assert fleet.calls["right"] == 6 * 600, "of the same key, and not of the same secret"


def test_it_spends_no_attempt() -> None:
    of = load_accounts({"wrong": aliyun()})
    assert all(is_paced(outcome) for outcome in refused(of["wrong"]))


def test_it_is_told_until_it_is_mended_and_a_while_longer() -> None:
    fleet = Fleet(workers=2)
    with capture_logs() as told:
        fleet.run(60, answer)
    assert [rates.refused_logins() for rates in fleet.rates] == [["wrong"], ["wrong"]]
    by_token = OwnTokens(ExchangeRecorder(TransportRouter()), 1.0)
    (shown,) = login_readings(by_token, fleet.rates[0])
    assert shown.family.name == "hongyan_login_refused", "of which the alert is raised"
    assert (shown.labels, shown.value) == ({"account": "wrong"}, 1)
    line, *others = [one for one in told if one["event"] == "login_refused"]
    assert len(others) < 2, "each process says it once"
    assert line["code"] == "SignatureDoesNotMatch"
    assert "check its id and secret" in line["check"]
    fleet.run(180, lambda _: [Accepted("1")])
    assert [rates.refused_logins() for rates in fleet.rates] == [[], []]
    assert fleet.calls["wrong"] > 100, "it goes on by itself once the login is mended"


def test_who_has_the_mended_secret_does_not_meet_the_refusal(redis_url: str) -> None:
    settings = RedisSettings(url=redis_url, timeout_ms=5_000)
    every = [(RedisBuckets(settings, "login"), RedisPaces(settings, "login")) for _ in range(3)]
    tables = [aliyun(), aliyun(), aliyun("simulator-secret")]
    try:
        here, there, mended = (
            RateLimiter(
                load_accounts({"main": table}).values(), buckets, workers=lambda _: 3, paces=paces
            )
            for table, (buckets, paces) in zip(tables, every, strict=True)
        )
        here.login_refused("main", 0, "SignatureDoesNotMatch", None)
        for rates in (here, there, mended):
            rates.tidy()
        assert LOGIN_MS - 5_000 < there.shut_s("main") * 1_000 <= LOGIN_MS + LATE_MS
        assert there.refused_logins() == ["main"]
        assert mended.shut_s("main") == 0
        assert mended.refused_logins() == []
    finally:
        for one in every:
            for each in one:
                each.close()
