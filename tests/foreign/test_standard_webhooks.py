"""The verifier of the package `standardwebhooks` judges the signatures of our webhook calls."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from channels.channel import Account, Call
from channels.providers.webhook.adapter import WebhookChannel
from channels.registry import AccountError, load_accounts
from tests.channels.calls import delivery

OLD, NEW, OTHER = ("whsec_" + b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))


def account(**options: str) -> Account:
    table = {"provider": "webhook", "endpoint": "https://provider.example/hook", **options}
    return load_accounts({"main": table})["main"]


def signed(**options: str) -> tuple[bytes, Mapping[str, str]]:
    """Body and header fields of one call."""
    one = delivery(content={"text": "你好 ☂ \\n"})
    request = WebhookChannel().request(Call(account(**options), (one,)))
    assert request.headers["webhook-id"] == request.headers["idempotency-key"] == one.key
    return request.read(), request.headers


def test_a_signed_call_is_verified_and_read() -> None:
    body, fields = signed(signing_secret=OLD)
    assert Webhook(OLD).verify(body, dict(fields)) == json.loads(body)


def test_while_keys_are_exchanged_either_key_verifies() -> None:
    body, fields = signed(signing_secret=OLD, other_signing_secret=NEW)
    for key in (OLD, NEW):
        Webhook(key).verify(body, dict(fields))
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(body, dict(fields))


@pytest.mark.parametrize(
    "changed", ["body", "webhook-id", "webhook-timestamp", "webhook-signature"]
)
def test_a_call_that_was_changed_on_its_way_is_refused(changed: str) -> None:
    body, given = signed(signing_secret=OLD)
    fields = dict(given)
    if changed == "body":
        body += b" "
    elif changed == "webhook-signature":
        fields[changed] = "v1," + b64encode(bytes(32)).decode()
    else:
        fields[changed] = str(int(fields[changed], 16) + 1) if "id" in changed else "1790000000"
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(body, fields)


def test_without_a_key_nothing_is_signed() -> None:
    request = WebhookChannel().request(Call(account(), (delivery(),)))
    assert not [name for name in request.headers if name.startswith("webhook-")]


@pytest.mark.parametrize(
    "wrong", ["whsec_", "geheim", OLD.removeprefix("whsec_"), "whsec_AAAA", "whsec_?"]
)
def test_a_secret_that_no_verifier_could_share_is_refused_without_showing_it(wrong: str) -> None:
    with pytest.raises(AccountError, match="whsec_ and the base64 of 24 to 64 bytes") as refused:
        account(signing_secret=wrong)
    assert wrong == "whsec_" or wrong not in str(refused.value)
