"""Masked receivers: one's own is recognised, a stranger's is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.envelope import Template
from message.outcome_event import receiver_hash
from message.vocabulary import CHANNELS
from tests.dispatcher.fakes import notification
from tracing.masks import MASK, hasher, mask, template_of


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


@pytest.mark.parametrize("key", ["k" * 32, "k" * 64, "k" * 65, "\u9e3f" * 200])
@pytest.mark.parametrize("receiver", ["+8613800000001", "\ud800", "", "\u5f20@example.com"])
def test_the_hash_of_a_receiver_is_that_of_outcome_events(key: str, receiver: str) -> None:
    assert hasher(key)("sms", receiver) == receiver_hash(key.encode(), "sms", receiver)


def test_without_a_key_there_is_no_hash() -> None:
    assert hasher("")("sms", "+8613800000001") == ""


@pytest.mark.parametrize(("name", "shown"), [("SMS_123", "SMS_123"), ("+8613800000001", MASK)])
def test_a_template_is_named_where_it_has_a_name(name: str, shown: str) -> None:
    one = notification(template=Template(id=name, params={}), content=None)
    assert template_of(one) == shown


def test_inline_content_has_no_template() -> None:
    assert template_of(notification()) == ""
