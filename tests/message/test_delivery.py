"""Which texts of strangers repeat something private of a delivery."""

import json
from typing import Any

import pytest

from message.delivery import Delivery, Rendered, deliveries_of
from message.envelope import decode

FAR_MS = 10**13


def one(*, ascii_only: bool = False, **fields: Any) -> Delivery:
    """A delivery from an envelope that a business system wrote."""
    envelope = {
        "v": 1,
        "id": "m-1",
        "channel": "webhook",
        "kind": "notice",
        "created_at": 1,
        "receivers": ["user-4711"],
        "template": {"id": "shipped", "params": {"order": "2046", "名": "张三"}},
        **fields,
    }
    value = json.dumps(envelope, ensure_ascii=ascii_only).encode()
    return deliveries_of(decode(value), value, expires_at=FAR_MS)[0]


@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "as-written"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sim-12345", False),
        ("user-4711", True),
        ("x/USER-4711/1", True),
        ("2046", True),
        ("id-2046", True),
        ("id2046", False),
        ("m-17", False),
    ],
)
def test_an_id_that_repeats_the_receiver_or_the_content_is_known(
    text: str, expected: bool, ascii_only: bool
) -> None:
    assert one(ascii_only=ascii_only).repeated_in(text) is expected


def test_a_receiver_is_known_as_its_channel_writes_it() -> None:
    delivery = one(channel="sms", receivers=["+86 138 0013 8000"])
    assert delivery.receiver == "+8613800138000"
    assert delivery.repeated_in("sms-8613800138000-1")


def test_what_a_template_made_is_known() -> None:
    delivery = one()
    delivery.rendered = Rendered(content={"text": "your code is 778899"})
    assert delivery.repeated_in("code is 778899")
    assert not delivery.repeated_in("sim-12345")
