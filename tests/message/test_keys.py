"""Delivery keys are the same everywhere, for ever."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.delivery import deliveries_of
from message.envelope import Notification
from message.keys import delivery_key, normalise_receiver


def test_the_key_is_this_one_and_no_other() -> None:
    text = "0192f3c4\x1fsms\x1f+8613800000001"
    assert delivery_key("0192f3c4", "sms", "+8613800000001") == "90f51097f935d2d6038f006b801d3562"
    assert hashlib.sha256(text.encode()).hexdigest()[:32] == "90f51097f935d2d6038f006b801d3562"


@pytest.mark.parametrize(
    ("channel", "written", "normal"),
    [
        ("sms", "+8613800000001", "+8613800000001"),
        ("sms", "+86 138-0000-0001", "+8613800000001"),
        ("sms", "+44 (0) 20 7946 0958", "+442079460958"),
        ("sms", "13800000001", "13800000001"),
        ("sms", "not a number", "not a number"),
        ("email", "Ann.Lee@Example.COM", "Ann.Lee@example.com"),
        ("email", '"a@B"@Example.COM', '"a@B"@example.com'),
        ("email", "no-domain", "no-domain"),
        ("wecom", "ZhangSan", "ZhangSan"),
        ("webhook", "User-1@Example.COM", "User-1@Example.COM"),
    ],
)
def test_a_receiver_is_normalised_by_its_channel(channel: str, written: str, normal: str) -> None:
    assert normalise_receiver(channel, written) == normal


@given(st.sampled_from(["sms", "email", "push"]), st.text(min_size=1, max_size=30))
def test_normalising_twice_changes_nothing(channel: str, receiver: str) -> None:
    once = normalise_receiver(channel, receiver)
    assert normalise_receiver(channel, once) == once


def test_a_receiver_listed_twice_counts_once_and_order_is_kept() -> None:
    notification = Notification(
        id="m1",
        channel="email",
        kind="notice",
        receivers=["b@x.com", "a@x.com", "b@X.COM"],
        content={},
        created_at=1,
    )
    found = deliveries_of(notification, b"{}", expires_at=5)
    assert [d.receiver for d in found] == ["b@x.com", "a@x.com"]
    assert len({d.key for d in found}) == 2
