"""Which account is called again, and until when a repeat is one."""

import msgspec

from channels.channel import Account
from channels.null import NullChannel
from dispatcher.accounts import Accounts
from dispatcher.rates import Rates
from message.delivery import Delivery
from message.outcomes import Unknown
from message.vocabulary import Lane
from policy.schema import BreakerPolicy, LanePolicy
from recovery.routes import Route, Routes
from tests.idempotency.making import delivery

LANE = Lane("sms", "notice")


class Deduping(NullChannel):
    dedup_window_ms = 100_000


def routes(*names: str) -> Routes:
    accounts = [Account(name, "null", "") for name in names]
    policy = LanePolicy(breaker=BreakerPolicy(min_calls=1, share=1.0))
    limits = Accounts(LANE, policy, accounts, Rates(accounts, None, workers=lambda _: 1))
    return Routes(LANE, policy, [Route(account, Deduping()) for account in accounts], limits)


def chosen(of: Routes, item: Delivery, *, same: bool = False) -> str | None:
    route = of.choose(item, of.bound_to(item, same=same))
    return route and route.account.name


def test_a_repeat_goes_through_the_same_account() -> None:
    item = delivery()
    item.account = "b"
    of = routes("a", "b")
    assert {chosen(of, item, same=True) for _ in range(6)} == {"b"}
    assert {chosen(of, item) for _ in range(6)} == {"a", "b"}
    assert item.notification.account is None


def test_a_notification_that_names_its_account_keeps_it() -> None:
    item = delivery()
    item.notification = msgspec.structs.replace(item.notification, account="b")
    assert {chosen(routes("a", "b"), item) for _ in range(6)} == {"b"}


def test_an_account_whose_breaker_is_open_sends_nothing_again_either() -> None:
    of, item = routes("a"), delivery()
    route = of.choose(item, None)
    assert route is not None
    of.accounts.record(route.account, [Unknown("timeout")])
    assert of.choose(item, None) is None
    assert of.accounts.room() == 0
    assert 0 < of.pause_ms(None) <= 10_000


def test_where_the_ledger_names_no_account_every_one_is_asked() -> None:
    item = delivery()
    of = routes("a", "b")
    assert [r.account.name for r in of.asked(item)] == ["a", "b"]
    item.account = "b"
    assert [r.account.name for r in of.asked(item)] == ["b"]
    item.account = "gone"
    assert of.asked(item) == []


def test_a_repeat_must_begin_a_margin_and_a_timeout_before_the_window_ends() -> None:
    deduping, plain = (Route(Account("a", "null", ""), c) for c in (Deduping(), NullChannel()))
    assert deduping.window_ends(1_000, 5_000) == 1_000 + 90_000 - 5_000
    assert plain.window_ends(1_000, 5_000) == 0
