"""Masked receivers: one's own is recognised, a stranger's is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.vocabulary import CHANNELS
from tracing.masks import MASK, mask


@pytest.mark.parametrize(
    ("channel", "receiver", "shown"),
    [
        ("sms", "+8613800000001", "+86138***0001"),
        ("sms", "13800000001", "138***0001"),
        ("sms", "10086", MASK),
        ("email", "ann.lee@example.com", "a***@example.com"),
        ("email", "a@example.com", "***@example.com"),
        ("email", "no-domain", "no***in"),
        ("wecom", "ZhangSan", "Zh***an"),
        ("wecom", "张三", MASK),
        ("webhook", "user-10529", "us***29"),
        ("push", "abc", MASK),
    ],
)
def test_a_receiver_is_masked_by_its_channel(channel: str, receiver: str, shown: str) -> None:
    assert mask(channel, receiver) == shown


@given(st.sampled_from(CHANNELS), st.text(min_size=1, max_size=60))
def test_no_receiver_is_shown_whole(channel: str, receiver: str) -> None:
    shown = mask(channel, receiver)
    assert MASK in shown
    if channel != "email":
        assert len(shown) - len(MASK) <= max(0, len(receiver) - 3)
