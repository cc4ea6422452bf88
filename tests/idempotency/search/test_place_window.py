"""The minute of a record is found by its neighbours, with few questions."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from idempotency.search.place_window import (
    MINUTE_MS,
    MOST_PROBES,
    Neighbour,
    window_of,
)

DAY_MS = 86_400_000


class Partition:
    """Rows of one partition in the order of their claims."""

    def __init__(self, times: list[int]) -> None:
        self.rows = [Neighbour(at, offset) for offset, at in enumerate(sorted(times))]
        self._times = [row.at for row in self.rows]
        self.asked = 0

    def probe(self, since: int, until: int) -> Neighbour | None:
        self.asked += 1
        place = bisect_left(self._times, since)
        return self.rows[place] if place < len(self.rows) and self._times[place] < until else None


@given(st.lists(st.integers(0, 6 * DAY_MS - 1), min_size=1, max_size=200), st.data())
def test_the_window_holds_the_row(times: list[int], data: st.DataObject) -> None:
    partition = Partition(times)
    row = data.draw(st.sampled_from(partition.rows))
    since, until = window_of(row.offset, 0, 6 * DAY_MS, partition.probe)
    assert since <= row.at < until


@given(st.integers(-5, 10**9), st.lists(st.integers(0, DAY_MS), max_size=20))
def test_it_ends_for_an_offset_that_is_not_there(offset: int, times: list[int]) -> None:
    partition = Partition(times)
    since, until = window_of(offset, 0, DAY_MS, partition.probe)
    assert 0 <= since <= until <= DAY_MS


def test_in_a_busy_partition_a_window_of_minutes_takes_few_questions() -> None:
    partition = Partition(list(range(0, 6 * DAY_MS, 5_000)))
    since, until = window_of(50_000, 0, 6 * DAY_MS, partition.probe)
    assert until - since <= 4 * MINUTE_MS
    assert partition.asked <= MOST_PROBES // 2
