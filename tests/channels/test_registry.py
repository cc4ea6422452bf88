"""Accounts from the configuration: what is wrong is said at start, by account and key."""

from typing import Any

import pytest

from backends.settings import SettingsError
from channels.channel import Account
from channels.providers.webhook.adapter import WebhookOptions
from channels.registry import PROVIDERS, AccountError, accounts_for, channel_for, load_accounts
from channels.secret import Secret
from message.vocabulary import Lane
from tests.conformance.samples import sample

WEBHOOK = Lane("webhook", "notice")
SMS = Lane("sms", "notice")
GOOD = {"provider": "webhook", "endpoint": "https://a.example/hook"}


def test_a_lane_gets_every_account_that_serves_its_channel() -> None:
    tables = {"a": GOOD, "b": GOOD, "none": {"provider": "null"}}
    assert [a.name for a in accounts_for(WEBHOOK, tables)] == ["a", "b", "none"]
    assert [a.name for a in accounts_for(SMS, tables)] == ["none"]
    assert accounts_for(SMS, {"a": GOOD}) == []


def test_a_policy_names_its_accounts_once_and_in_order() -> None:
    tables = {"a": GOOD, "b": GOOD, "c": GOOD}
    assert [a.name for a in accounts_for(WEBHOOK, tables, ["c", "a", "c"])] == ["c", "a"]


def test_an_account_knows_its_channel_and_options() -> None:
    (account,) = accounts_for(WEBHOOK, {"a": {**GOOD, "token": "s3cret", "ca_file": "/x"}})
    assert channel_for(account).provider == "webhook"
    assert account.options == WebhookOptions(token=Secret("s3cret"))
    assert account.ca_file == "/x"
    assert "s3cret" not in repr(account)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "accounts.main.provider: is missing"),
        ({"provider": "pigeon"}, "accounts.main.provider: unknown provider 'pigeon'"),
        ({"provider": "webhook"}, "accounts.main.endpoint: is missing"),
        ({"endpoint": 7}, "accounts.main.endpoint: is missing"),
        ({"endpoint": "a.example/hook"}, "must be a full http:// or https:// URL"),
        ({"endpoint": "ftp://a.example/"}, "must be a full http:// or https:// URL"),
        ({"endpoint": "https:///x"}, "must be a full http:// or https:// URL"),
        ({"endpoint": "https://u:p@a.example/"}, "must not hold a user name"),
        ({"endpoint": "https://a.example/#x"}, "must not have a fragment"),
        ({"endpoint": "https://a.example/ x"}, "holds a blank"),
        ({"endpoint": "https://a.example/\n"}, "holds a blank"),
        ({"endpoint": "https://a.example:99999/"}, "names the port 99999"),
        ({"endpoint": "http://[::1/"}, "accounts.main.endpoint: is not a URL"),
        ({**GOOD, "token": "a\nb"}, "accounts.main.token: must be a text of printable"),
        ({**GOOD, "token": 5}, "accounts.main.token: must be a text of printable"),
    ],
)
def test_a_wrong_account_is_named_with_its_key(table: dict[str, Any], said: str) -> None:
    full = {"provider": "webhook", **table} if "endpoint" in table else table
    with pytest.raises(AccountError, match=r"accounts\.main") as raised:
        load_accounts({"main": full})
    assert said in str(raised.value)
    assert "a\nb" not in str(raised.value)


def test_a_policy_that_names_no_account_of_ours_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"no account 'x'; hongyan\.toml has a"):
        accounts_for(WEBHOOK, {"a": GOOD}, ["x"])


def test_a_policy_that_names_an_account_of_another_channel_is_refused() -> None:
    with pytest.raises(SettingsError, match="does not serve sms"):
        accounts_for(SMS, {"a": GOOD}, ["a"])


def test_accounts_of_one_application_are_counted_as_one() -> None:
    def made(name: str, key: str, **more: str) -> Account:
        table = {"provider": "resend", "api_key": key, "sender": f"{name}@example.com", **more}
        return load_accounts({name: table})[name]

    one = made("one", "re_1")
    assert one.counted_as == made("two", "re_1").counted_as
    assert one.counted_as != made("three", "re_2").counted_as
    assert one.counted_as != made("four", "re_1", endpoint="https://other.example").counted_as
    assert "re_1" not in one.counted_as


def test_accounts_that_say_so_are_counted_as_one_whatever_their_keys() -> None:
    def made(name: str, **more: Any) -> Account:
        table = {"provider": "resend", "api_key": name, "sender": f"{name}@example.com", **more}
        return load_accounts({name: table})[name]

    one, two = made("one", counted_as="our-team"), made("two", counted_as="our-team")
    assert one.counted == two.counted == one.bucket == two.bucket
    assert one.counted != made("three").counted != made("four", counted_as="another").counted
    slower = made("five", counted_as="our-team", rate_per_s=0.5)
    assert (slower.counted, slower.bucket) == (one.counted, "")
    with pytest.raises(AccountError, match=r"accounts\.one\.counted_as: expected str"):
        made("one", counted_as="")


@pytest.mark.parametrize("name", sorted(n for n, c in PROVIDERS.items() if c.account_limits))
def test_a_rate_made_of_a_limit_stays_within_it_with_its_burst_and_what_workers_hold(
    name: str,
) -> None:
    channel = PROVIDERS[name]
    found = sample(name)
    assert found is not None
    account = found.account("http://127.0.0.1")
    assert account.rate_per_s is not None
    assert account.burst is not None
    for count, seconds in channel.account_limits:
        # A burst of one is the next of those that go evenly. A larger one goes on top, and part is held.
        on_top = account.burst + account.burst // 10 if account.burst > 1 else count / 10
        assert account.rate_per_s * seconds + on_top <= count + 1e-9


def test_every_provider_tells_its_limits() -> None:
    for name in PROVIDERS.keys() - {"webhook", "null", "smtp"}:
        channel = PROVIDERS[name]
        assert channel.promises.limits
        assert channel.counted_by, name
        assert set(channel.counted_by) <= set(channel.options.__struct_fields__)
