"""Snowflake ids: three fields in 63 bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.snowflake import (
    EPOCH_MS,
    LAST_MS,
    MAX_ID,
    PER_MS,
    WORKERS,
    SnowflakeParts,
    decode_snowflake,
    encode_snowflake,
)

PARTS = st.builds(
    SnowflakeParts,
    st.integers(EPOCH_MS, LAST_MS),
    st.integers(0, WORKERS - 1),
    st.integers(0, PER_MS - 1),
)


@given(PARTS)
def test_an_id_gives_its_fields_back(parts: SnowflakeParts) -> None:
    number = encode_snowflake(parts)
    assert decode_snowflake(number) == parts
    assert 0 <= number < 2**63


@given(PARTS, PARTS)
def test_ids_sort_as_their_fields(one: SnowflakeParts, other: SnowflakeParts) -> None:
    assert (one < other) == (encode_snowflake(one) < encode_snowflake(other))


def test_the_layout_never_changes() -> None:
    assert encode_snowflake(SnowflakeParts(EPOCH_MS, 0, 0)) == 0
    assert encode_snowflake(SnowflakeParts(1_790_000_000_000, 5, 7)) == 227_794_327_961_620_487
    assert encode_snowflake(SnowflakeParts(LAST_MS, WORKERS - 1, PER_MS - 1)) == MAX_ID == 2**63 - 1


@pytest.mark.parametrize(
    "parts",
    [
        SnowflakeParts(EPOCH_MS - 1, 0, 0),
        SnowflakeParts(LAST_MS + 1, 0, 0),
        SnowflakeParts(EPOCH_MS, WORKERS, 0),
        SnowflakeParts(EPOCH_MS, 0, PER_MS),
        SnowflakeParts(EPOCH_MS, -1, 0),
    ],
)
def test_a_field_out_of_range_is_refused(parts: SnowflakeParts) -> None:
    with pytest.raises(ValueError, match="from"):
        encode_snowflake(parts)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_no_other_number_is_decoded(number: int) -> None:
    with pytest.raises(ValueError, match="63 bits"):
        decode_snowflake(number)
