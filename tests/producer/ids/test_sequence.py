"""Places and the ids that they have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from message.snowflake import EPOCH_MS, PER_MS, SnowflakeParts, decode_snowflake, encode_snowflake
from producer.ids.sequence import first_place, ids_between, time_of


@given(st.integers(0, 2**41 - 100), st.integers(0, PER_MS - 1), st.integers(0, 3 * PER_MS))
def test_a_batch_has_the_ids_of_its_places_one_by_one(ms: int, offset: int, count: int) -> None:
    first = ms * PER_MS + offset
    wanted = [
        encode_snowflake(SnowflakeParts(EPOCH_MS + place // PER_MS, 9, place % PER_MS))
        for place in range(first, first + count)
    ]
    assert ids_between(first, first + count, 9) == wanted


def test_a_place_has_the_time_of_its_ids() -> None:
    place = first_place(1_790_000_000_123)
    (number,) = ids_between(place, place + 1, 1)
    assert time_of(place) == decode_snowflake(number).at_ms == 1_790_000_000_123
