"""Twilio's `RequestValidator` (package `twilio`) judges which callbacks our receipts take for genuine."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from twilio.request_validator import RequestValidator

from channels.secret import Secret
from receipts.parsers.twilio import TwilioCallbacks, TwilioSigning
from receipts.push import Push, Unauthentic

TOKEN = "0123456789abcdef0123456789abcdef"
FORM = {"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+14155550100", "Empty": ""}
HOSTS = ("example.com", "example.com:443", "example.com:8443", "example.com:80")


def taken(public_url: str, query: str, signature: str) -> bool:
    """Whether our parser takes the callback for genuine."""
    push = Push(
        "acc", "POST", query, {"x-twilio-signature": signature}, urlencode(FORM).encode(), 0.0
    )
    try:
        return bool(
            TwilioCallbacks().parse(push, TwilioSigning(Secret(TOKEN), public_url)).receipts
        )
    except Unauthentic:
        return False


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("told", HOSTS)
@pytest.mark.parametrize("signed", HOSTS)
@pytest.mark.parametrize("query", ["", "hongyan_key=0123&b=%20"])
def test_a_callback_is_taken_exactly_where_twilios_validator_takes_it(
    scheme: str, told: str, signed: str, query: str
) -> None:
    judge = RequestValidator(TOKEN)
    suffix = f"?{query}" if query else ""
    address = f"{scheme}://{told}/receipts/acc"
    signature = judge.compute_signature(f"{scheme}://{signed}/receipts/acc{suffix}", FORM)
    genuine = judge.validate(address + suffix, FORM, signature)
    assert taken(address, query, signature) == genuine
    assert genuine or signed != told  # what was told is always genuine


def test_a_callback_signed_with_another_token_is_refused_by_both() -> None:
    url = "https://example.com/receipts/acc"
    signature = RequestValidator("another").compute_signature(url, FORM)
    assert not RequestValidator(TOKEN).validate(url, FORM, signature)
    assert not taken(url, "", signature)
