"""Retry-After in both its forms, bounded, and never an error."""

from datetime import UTC, datetime
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.judging.retry_after import MAX_MS, retry_after_ms

NOW_S = 1_700_000_000
DAY_S = 86_400


def wish(text: str, **headers: str) -> int | None:
    return retry_after_ms(httpx.Headers({"Retry-After": text, **headers}), NOW_S)


def date(epoch_s: int) -> str:
    return format_datetime(datetime.fromtimestamp(epoch_s, UTC), usegmt=True)


@given(st.integers(0, 10**18 - 1))
def test_seconds_are_kept_to_a_day_at_most(seconds: int) -> None:
    assert wish(str(seconds)) == min(seconds * 1_000, MAX_MS)


@given(st.integers(-DAY_S, 2 * DAY_S))
def test_a_date_counts_from_the_answers_own(seconds: int) -> None:
    skewed = NOW_S + 5_000  # the provider's clock is not ours
    found = wish(date(skewed + seconds), Date=date(skewed))
    assert found == max(0, min(seconds * 1_000, MAX_MS))


def test_a_date_counts_from_our_clock_where_the_answer_has_none() -> None:
    assert wish(date(NOW_S + 90)) == 90_000


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_bytes_raise(value: bytes, answered: bytes) -> None:
    headers = httpx.Headers([(b"retry-after", value), (b"date", answered)])
    found = retry_after_ms(headers, NOW_S)
    assert found is None or 0 <= found <= MAX_MS


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "+3", "٣", "soon", "Wed, 99 Foo 2026 99:99:99 GMT", "1" * 40]
)
def test_what_cannot_be_read_is_no_wish(text: str) -> None:
    assert retry_after_ms(httpx.Headers([(b"retry-after", text.encode())]), NOW_S) is None


def test_no_header_is_no_wish() -> None:
    assert retry_after_ms(httpx.Headers(), NOW_S) is None
