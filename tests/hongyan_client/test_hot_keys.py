"""Counts of ordering keys: a hot one is named, and memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hongyan_client.hot_keys import _ENOUGH, _KEYS, _WINDOW, KeyShares


def test_a_share_is_never_above_the_true_one_and_a_heavy_key_is_found() -> None:
    shares = KeyShares(0.2)
    for number in range(5_000):
        shares.note("sms.notice", "heavy" if number % 3 == 0 else f"k{number}")
    (hot,) = shares.hot()
    assert hot.key == "heavy"
    assert 1 / 3 - 1 / _KEYS <= hot.share <= 1 / 3 + 0.001


def test_few_notifications_name_nothing() -> None:
    shares = KeyShares(0.2)
    for _ in range(_ENOUGH - 1):
        shares.note("sms.notice", "only")
    assert shares.hot() == []
    shares.note("sms.notice", "only")
    assert [one.share for one in shares.hot()] == [1.0]


@pytest.mark.parametrize("none", [None, ""])
def test_notifications_without_a_key_lower_the_shares(none: str | None) -> None:
    shares = KeyShares(0.2)
    for number in range(1_000):
        shares.note("sms.notice", "k" if number % 10 == 0 else none)
    assert shares.hot() == []


def test_a_key_that_was_hot_fades() -> None:
    shares = KeyShares(0.2)
    for _ in range(_WINDOW // 2):
        shares.note("sms.notice", "yesterday")
    for _ in range(4 * _WINDOW):
        shares.note("sms.notice", None)
    assert shares.hot() == []


@given(st.lists(st.integers(0, 500), max_size=2_000))
def test_counters_are_bounded_whatever_the_keys(keys: list[int]) -> None:
    shares = KeyShares(0.2)
    for key in keys:
        shares.note("sms.notice", str(key))
    assert len(shares._counts.get("sms.notice", {})) <= _KEYS
