"""Which account is called again, and until when a repeat is one."""

from pathlib import Path

import msgspec

from channels.channel import Account
from channels.providers.null import NullChannel
from message.delivery import Delivery, Rendered
from message.envelope import Template
from message.outcomes import Unknown
from message.vocabulary import Lane
from policy.schema import BreakerPolicy, LanePolicy
from policy.templates.loading import load
from recovery.retry.retry_lane import RetryLane
from recovery.wiring import _render
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from tests.idempotency.making import delivery
from tests.recovery.followed import followed

LANE = Lane("sms", "notice")


class Deduping(NullChannel):
    dedup_window_ms = 100_000


def routes(*names: str) -> RetryLane:
    accounts = [Account(name, "null", "") for name in names]
    policy = LanePolicy(breaker=BreakerPolicy(min_calls=1, share=1.0))
    limits = AccountSelector(
        LANE, policy, accounts, RateLimiter(accounts, None, workers=lambda _: 1)
    )
    return RetryLane(LANE, "", policy, {a.name: Route(a, Deduping()) for a in accounts}, limits)


def naming(template: Template) -> Delivery:
    item = delivery()
    item.notification = msgspec.structs.replace(item.notification, template=template, content=None)
    return item


def chosen(of: RetryLane, item: Delivery, *, same: bool = False) -> str | None:
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


def test_a_template_that_has_nothing_for_a_provider_keeps_to_the_other_accounts() -> None:
    accounts = [Account("a", "null", ""), Account("b", "other", "", rate_per_s=0.5, burst=1)]
    limits = AccountSelector(
        LANE, LanePolicy(), accounts, RateLimiter(accounts, None, workers=lambda _: 1)
    )
    of = RetryLane(
        LANE, "", LanePolicy(), {a.name: Route(a, NullChannel()) for a in accounts}, limits
    )
    item = delivery()
    item.rendered = Rendered(providers={"null": Rendered(), "other": Rendered(content={})})
    assert [chosen(of, item), chosen(of, item)] == ["b", None]
    assert of.pause_ms(*of.accounts.restricted_to(item)) > 1_000, (
        "the other account has room, and is no help"
    )
    item.account = "a"
    assert chosen(of, item, same=True) == "a", "a repeat is of the same call"


def test_what_is_sent_again_is_made_anew_for_whichever_provider(tmp_path: Path) -> None:
    item = naming(Template("t", {"v": "1"}))
    (tmp_path / "templates.toml").write_text(
        f"""[templates.t]
channel = "{item.notification.channel}"
variables = {{ v = "string" }}
providers.null = {{ text = "{{{{ v }}}}" }}
providers.other = {{ text = "other {{{{ v }}}}" }}
"""
    )
    kept = item.payload
    assert _render(followed(load(tmp_path / "templates.toml")), item) == ""
    assert item.content_for("null") == {"text": "1"}
    assert item.content_for("other") == {"text": "other 1"}
    assert item.payload is kept


def test_an_account_whose_breaker_is_open_sends_nothing_again_either() -> None:
    of, item = routes("a"), delivery()
    route = of.choose(item, None)
    assert route is not None
    of.accounts.record(route.account, [Unknown("timeout")])
    assert of.choose(item, None) is None
    assert of.accounts.room() == 0
    assert 0 < of.pause_ms() <= 10_000


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
