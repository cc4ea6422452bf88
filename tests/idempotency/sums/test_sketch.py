"""Sketches: a bounded error, and sums in any order are the same."""

from hypothesis import given
from hypothesis import strategies as st

from idempotency.sums.sketch import ERROR, LONGEST_MS, LatencySketch, bucket_of, middle_of

TIMES = st.lists(st.integers(0, LONGEST_MS), max_size=50)


def sketch_of(times: list[int]) -> LatencySketch:
    made = LatencySketch()
    made.add(times)
    return made


@given(st.integers(0, LONGEST_MS))
def test_a_bucket_knows_its_times_within_the_stated_error(ms: int) -> None:
    assert abs(middle_of(bucket_of(ms)) - ms) <= ERROR * ms


@given(st.integers(0, LONGEST_MS - 1))
def test_a_longer_time_is_in_no_earlier_bucket(ms: int) -> None:
    assert 0 <= bucket_of(ms + 1) - bucket_of(ms) <= 1


def test_a_sketch_is_bounded_whatever_the_times() -> None:
    assert bucket_of(10**15) == bucket_of(LONGEST_MS) < 500
    assert bucket_of(-5) == 0


@given(TIMES, TIMES)
def test_two_sketches_together_are_the_sketch_of_all(one: list[int], other: list[int]) -> None:
    both = sketch_of(one)
    both.merge(sketch_of(other).encoded())
    assert both.buckets == sketch_of(one + other).buckets


@given(TIMES.filter(bool), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_the_error_of_the_exact_one(times: list[int], share: float) -> None:
    exact = sorted(times)[max(0, -int(-share * len(times) // 1) - 1)]
    found = sketch_of(times).quantile(share)
    assert found is not None
    assert abs(found - exact) <= ERROR * exact


def test_no_times_have_no_quantile_and_no_text() -> None:
    assert LatencySketch().quantile(0.5) is None
    assert LatencySketch().encoded() == ""
