"""The offset tracker against the plainest model: a set of what is done."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.kafka.offset_metadata import OffsetRange
from dispatcher.kafka.offsets import Offsets, OffsetStatus


def lowest_not_in(done: set[int], start: int) -> int:
    while start in done:
        start += 1
    return start


@given(
    start=st.integers(0, 100),
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    seed=st.integers(0, 2**32),
)
def test_watermark_is_the_lowest_offset_not_done_whatever_the_order(
    start: int, gaps: list[int], seed: int
) -> None:
    tracker, chance = Offsets(start), random.Random(seed)
    offset = start
    open_offsets: list[int] = []
    done: set[int] = set()
    for gap in gaps:
        done.update(range(offset, offset + gap))
        offset += gap
        assert tracker.register(offset, 0.0) is OffsetStatus.NEW
        open_offsets.append(offset)
        offset += 1
        if chance.random() < 0.5:
            ended = open_offsets.pop(chance.randrange(len(open_offsets)))
            tracker.complete(ended)
            done.add(ended)
        assert tracker.watermark == lowest_not_in(done, start)
        above = {o for run in tracker.runs() for o in range(run.start, run.end)}
        assert above == {o for o in done if o > tracker.watermark}
    assert tracker.outstanding == len(open_offsets)


def test_completions_in_random_order_leave_one_watermark_and_no_runs() -> None:
    tracker = Offsets(0)
    offsets = list(range(100_000))
    for offset in offsets:
        tracker.register(offset, 0.0)
    random.Random(7).shuffle(offsets)
    tracker.complete_all(offsets)
    assert (tracker.watermark, tracker.runs(), tracker.outstanding) == (100_000, [], 0)


def test_completing_twice_changes_nothing() -> None:
    tracker = Offsets(0)
    for offset in range(3):
        tracker.register(offset, 0.0)
    tracker.complete(1)
    tracker.complete(1)
    assert (tracker.watermark, tracker.runs()) == (0, [OffsetRange(1, 2)])


def test_without_a_committed_offset_the_first_record_is_the_beginning() -> None:
    tracker = Offsets(None)
    assert tracker.watermark is None
    tracker.register(41, 0.0)
    assert tracker.watermark == 41


def test_offsets_the_broker_never_shows_count_as_done() -> None:
    tracker = Offsets(10)
    tracker.register(15, 0.0)
    assert tracker.watermark == 15


def test_what_a_predecessor_completed_is_not_looked_at_again() -> None:
    tracker = Offsets(10, [OffsetRange(12, 14)])
    seen = [tracker.register(offset, 0.0) for offset in range(10, 16)]
    assert seen == [
        OffsetStatus.NEW,
        OffsetStatus.NEW,
        OffsetStatus.DONE,
        OffsetStatus.DONE,
        OffsetStatus.NEW,
        OffsetStatus.NEW,
    ]
    tracker.complete_all([10, 11])
    assert tracker.watermark == 14


def test_a_record_seen_again_while_open_is_not_taken_twice() -> None:
    tracker = Offsets(0)
    tracker.register(0, 0.0)
    assert tracker.register(0, 1.0) is OffsetStatus.OPEN


def test_an_offset_below_the_watermark_says_that_the_log_began_anew() -> None:
    tracker = Offsets(0)
    tracker.register(0, 0.0)
    tracker.complete(0)
    assert tracker.register(0, 1.0) is OffsetStatus.REWOUND


def test_the_oldest_open_record_is_the_one_that_holds_the_watermark() -> None:
    tracker = Offsets(0)
    for offset in range(3):
        tracker.register(offset, float(offset))
    tracker.complete(0)
    assert tracker.oldest == 1.0


def test_memory_stays_flat_behind_a_stuck_offset() -> None:
    tracker = Offsets(0)
    tracker.register(0, 0.0)
    for offset in range(1, 50_000):
        tracker.register(offset, 0.0)
        tracker.complete(offset)
    assert tracker.runs() == [OffsetRange(1, 50_000)]
    assert tracker.outstanding == 1
