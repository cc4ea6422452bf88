"""Before a send the adapters are asked as the worker asks them; secrets are not needed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import fields, replace

from channels.registry import PROVIDERS, account_without_secrets, load_accounts
from channels.secret import Secret
from message.delivery import Rendered, deliveries_of
from message.envelope import EnvelopeError, Notification, Template, encode
from sending.adapter_refusals import refusal_of
from sending.receiver_check import ReceiverCheck
from tests.conformance.samples import WITHOUT, sample
from tests.harness.notifications import notification

ALIYUN = {"provider": "aliyun_sms", "access_key_id": "id", "sign_name": "鸿雁"}
TWILIO = {"provider": "twilio", "account_sid": "AC" + "0" * 32, "sender": "+15005550006"}
SMTP = {"provider": "smtp", "endpoint": "smtp://127.0.0.1:25", "sender": "a@example.com"}
SIGNED = {"apns", "fcm"}
"""Providers whose accounts are not made without a key in PEM."""
WEBHOOK = {"provider": "webhook", "endpoint": "http://127.0.0.1:1/"}


def sms(*receivers: str, **changes: Any) -> Notification:
    body = {"template": Template("SMS_1", {"code": "4711"}), "content": None}
    return notification("sms.notice", receivers=list(receivers), **{**body, **changes})


def refused(tables: dict[str, Any], one: Notification) -> EnvelopeError:
    with pytest.raises(EnvelopeError) as caught:
        ReceiverCheck(tables)(one)
    return caught.value


def test_a_wrong_number_is_refused_with_the_workers_sentence() -> None:
    one = sms("+8613800000001", "+861380000")
    error = refused({"main": ALIYUN}, one)
    assert (error.code, error.path) == ("bad_number", "$.receivers[1]")
    table = {**ALIYUN, "access_key_secret": "a-secret"}
    account = load_accounts({"main": table})["main"]
    wrong = deliveries_of(one, encode(one), expires_at=0)[1]
    assert f"{error.code}: {error.detail}" == refusal_of(wrong, account, PROVIDERS["aliyun_sms"])


def test_good_receivers_pass_without_a_secret() -> None:
    ReceiverCheck({"main": ALIYUN})(sms("+8613800000001", "+85251234567"))


def test_a_wrong_address_of_mail_is_refused() -> None:
    one = notification("email.notice", receivers=["ann"], content={"subject": "s", "text": "t"})
    assert refused({"post": SMTP}, one).path == "$.receivers[0]"


def test_a_content_that_no_adapter_sends_is_refused_at_its_place() -> None:
    text = sms("+8613800000001", content={"text": "x"}, template=None)
    assert refused({"main": ALIYUN}, text).path == "$.content"
    params = Template("SMS_1", {"codes": [1]})
    error = refused({"main": ALIYUN}, sms("+8613800000001", template=params))
    assert (error.code, error.path) == ("bad_params", "$.template")


def test_one_account_that_can_send_it_is_enough() -> None:
    text = sms("+8613800000001", content={"text": "x"}, template=None)
    assert refused({"main": ALIYUN}, text).code == "no_template"
    ReceiverCheck({"main": ALIYUN, "other": TWILIO})(text)
    assert refused({"main": ALIYUN, "other": TWILIO}, sms("12")).code == "bad_number"


def test_a_number_that_aliyun_reads_as_anothers_is_left_to_other_providers() -> None:
    text = sms("+13125550123", content={"text": "x"}, template=None)
    error = refused({"main": ALIYUN}, text)
    assert (error.code, error.path) == ("ambiguous_number", "$.receivers[0]")
    ReceiverCheck({"main": ALIYUN, "other": TWILIO})(text)


def test_the_named_account_alone_counts() -> None:
    text = sms("+8613800000001", content={"text": "x"}, template=None, account="main")
    assert refused({"main": ALIYUN, "other": TWILIO}, text).path == "$.content"


def test_an_account_that_the_channel_has_not_is_refused_as_by_the_source() -> None:
    error = refused({"main": ALIYUN, "post": SMTP}, sms("+8613800000001", account="post"))
    assert error.code == "unknown_account"
    assert error.detail == "no such account serves lane sms.notice; there are main"


def test_the_rendered_template_is_the_one_that_counts() -> None:
    check = ReceiverCheck({"main": ALIYUN})
    one = sms("+8613800000001", template=Template("code", {"lines": []}))
    check(one, Rendered(template=Template("SMS_1", {"code": "1"})))
    with pytest.raises(EnvelopeError):
        check(one)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"post": SMTP},
        {"main": ALIYUN, "hook": {**WEBHOOK}, "null": {"provider": "null"}},
        {"broken": {**ALIYUN, "nonsense": 1}},
        {"strange": {"provider": "nobody"}},
    ],
)
def test_without_an_account_that_can_be_asked_nothing_is_refused(tables: dict[str, Any]) -> None:
    ReceiverCheck(tables)(sms("12"))


@pytest.mark.parametrize("provider", sorted(set(PROVIDERS) - WITHOUT))
def test_an_account_without_its_secrets_refuses_the_same(provider: str) -> None:
    one = sample(provider)
    assert one is not None
    scheme = "smtp" if one.scheme == "smtp" else "http"
    whole = one.account(f"{scheme}://127.0.0.1:1")
    table = {**one.account_table, "provider": provider, "endpoint": whole.endpoint}
    secrets = {f.encode_name for f in fields(PROVIDERS[provider].options) if f.type is Secret}
    made = account_without_secrets("x", {k: v for k, v in table.items() if k not in secrets})
    if made is None:
        assert provider in SIGNED, "its adapter could be asked without a key"
        return
    good = one.notification(1)
    for asked in (good, replace(good, receivers=["?"]), replace(good, receivers=["group:"])):
        for delivery in deliveries_of(asked, encode(asked), expires_at=0):
            without = refusal_of(delivery, replace(made, name=whole.name), PROVIDERS[provider])
            assert without == refusal_of(delivery, whole, PROVIDERS[provider])
