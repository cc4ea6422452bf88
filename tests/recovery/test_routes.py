"""Which account is called again, and until when a repeat is one."""

import msgspec
import pytest

from channels.channel import Account
from channels.null import NullChannel
from message.delivery import Delivery
from message.vocabulary import Lane
from policy.schema import LanePolicy
from recovery.routes import Route, Routes
from tests.idempotency.making import delivery

LANE = Lane("sms", "notice")


class Deduping(NullChannel):
    dedup_window_ms = 100_000


def routes(weights: dict[str, int], luck: float = 0.0) -> Routes:
    made = [Route(Account(name, "null", ""), Deduping()) for name in weights]
    return Routes(LANE, LanePolicy(accounts=weights), made, lambda: luck)


def chosen(of: Routes, item: Delivery, *, same: bool = False) -> str | None:
    route = of.choose(item, same=same)
    return route and route.account.name


@pytest.mark.parametrize(("luck", "name"), [(0.0, "a"), (0.74, "a"), (0.76, "b"), (0.999, "b")])
def test_by_weight_and_never_a_reserve(luck: float, name: str) -> None:
    assert chosen(routes({"a": 3, "b": 1, "reserve": 0}, luck), delivery()) == name


def test_a_repeat_goes_through_the_same_account_or_none() -> None:
    item = delivery()
    item.account = "b"
    assert chosen(routes({"a": 1, "b": 1}), item, same=True) == "b"
    assert chosen(routes({"a": 1}), item, same=True) is None


def test_a_notification_that_names_its_account_keeps_it() -> None:
    item = delivery()
    item.notification = msgspec.structs.replace(item.notification, account="b")
    assert chosen(routes({"a": 9, "b": 1}), item) == "b"
    assert chosen(routes({"a": 9}), item) is None


def test_where_the_ledger_names_no_account_every_one_is_asked() -> None:
    item = delivery()
    of = routes({"a": 1, "b": 1})
    assert [r.account.name for r in of.asked(item)] == ["a", "b"]
    item.account = "b"
    assert [r.account.name for r in of.asked(item)] == ["b"]
    item.account = "gone"
    assert of.asked(item) == []


def test_a_repeat_must_begin_a_margin_and_a_timeout_before_the_window_ends() -> None:
    deduping, plain = (Route(Account("a", "null", ""), c) for c in (Deduping(), NullChannel()))
    assert deduping.window_ends(1_000, 5_000) == 1_000 + 90_000 - 5_000
    assert plain.window_ends(1_000, 5_000) == 0
