"""Sums from memory through their table and roll-up to a page's reading, on both databases."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idempotency.sql_ledger import SqlLedger
from idempotency.sums.counter import FENCED, MINUTE_MS, MOST_MINUTES, MinuteSums, SumRow
from idempotency.sums.reading import Piece, SumReader, SumsRead, kept_span, pieces, span_of
from idempotency.sums.rollup import DAY_MS, HOUR_MS, RAW_KEPT_MS, SPANS, merged
from idempotency.sums.sketch import LatencySketch
from tests.idempotency.making import NOON, World

SMS = ("sms.notice", "main", "SENT")
MAIL = ("email.notice", "post", "REJECTED")


@pytest.fixture
def reader(ledger: SqlLedger) -> SumReader:
    return SumReader(ledger.database, ledger.sums().clock)


def counted(read: SumsRead) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for row in read.rows:
        found[row[1:4]] += row.deliveries
    return found


def test_times_of_a_delivery_are_counted_stage_by_stage() -> None:
    sums = MinuteSums()
    sums.add(NOON, [SMS, MAIL], [(1_000, 1_010, 1_013, 1_020, 1_028), (0, 0, 0, 500, 0)])
    sent, refused = sorted(sums.unwritten(), key=lambda row: row.outcome, reverse=True)
    assert sent == SumRow(NOON, *SMS, 1, "[28,1]", "[3,1]", "[7,1]", "[8,1]")
    assert refused == SumRow(NOON, *MAIL, 1)


def test_what_another_process_has_now_is_not_counted() -> None:
    sums = MinuteSums()
    sums.add(NOON, [("sms.notice", "main", FENCED)], [(1, 2, 3, 4, 5)])
    assert sums.unwritten() == []


def test_times_of_more_than_a_batch_are_all_counted() -> None:
    sums = MinuteSums()
    for _ in range(25):
        sums.add(NOON, [SMS] * 100, [(0, 0, 0, 10, 30)] * 100)
    (row,) = sums.unwritten()
    assert (row.deliveries, row.call) == (2_500, "[20,2500]")


_TIMES = st.tuples(*[st.integers(0, 50)] * 3, st.just(60), st.sampled_from([0, 80, 4_000]))


@given(st.lists(st.tuples(st.sampled_from([SMS, MAIL]), st.integers(0, 2), _TIMES), max_size=30))
def test_one_by_one_they_add_up_as_in_batches(
    ends: list[tuple[tuple[str, str, str], int, tuple[int, int, int, int, int]]],
) -> None:
    singly, together = MinuteSums(), MinuteSums()
    for series, minute, times in ends:
        singly.add_one(NOON + minute * MINUTE_MS, series, times)
        together.add(NOON + minute * MINUTE_MS, [series], [times])
    assert singly.unwritten() == together.unwritten()


def test_only_what_changed_is_written_again_and_a_minute_that_is_over_is_forgotten() -> None:
    sums = MinuteSums()
    sums.add(NOON, [SMS, MAIL])
    assert len(sums.unwritten()) == 2
    sums.add(NOON, [SMS])
    assert [row.deliveries for row in sums.unwritten()] == [2]
    sums.add(NOON + MINUTE_MS, [SMS])
    assert [row.minute for row in sums.unwritten()] == [NOON + MINUTE_MS]
    assert sums.lost == 0


def test_a_clock_that_goes_back_begins_no_minute_anew() -> None:
    sums = MinuteSums()
    sums.add(NOON, [SMS])
    sums.add(NOON + MINUTE_MS, [SMS])
    sums.unwritten()
    sums.unwritten()
    sums.add(NOON, [SMS])
    assert [row[:5] for row in sums.unwritten()] == [(NOON + MINUTE_MS, *SMS, 2)]


def test_memory_is_bounded_while_nothing_can_be_written() -> None:
    sums = MinuteSums()
    for minute in range(2 * MOST_MINUTES):
        sums.add(NOON + minute * MINUTE_MS, [SMS])
        sums.not_written(sums.unwritten())
    assert len(sums.unwritten()) <= MOST_MINUTES + 1
    assert sums.lost >= MOST_MINUTES - 1


@given(st.lists(st.tuples(st.sampled_from([SMS, MAIL]), st.booleans()), max_size=40))
@settings(deadline=None)
def test_writes_that_fail_lose_and_double_nothing(
    steps: list[tuple[tuple[str, ...], bool]],
) -> None:
    """The table is a dict here: the last whole row of a key stays."""
    sums, table = MinuteSums(), dict[tuple[object, ...], int]()
    for number, (series, fails) in enumerate(steps):
        sums.add(NOON + number * MINUTE_MS // 3, [series])  # type: ignore[list-item]
        rows = sums.unwritten()
        if fails:
            sums.not_written(rows)
        else:
            table |= {row[:4]: row.deliveries for row in rows}
    table |= {row[:4]: row.deliveries for row in sums.unwritten()}
    assert sum(table.values()) == len(steps)


@given(st.data())
@settings(deadline=None)
def test_rows_may_be_merged_in_any_groups(data: st.DataObject) -> None:
    series = st.sampled_from([SMS, MAIL])
    drawn = data.draw(
        st.lists(st.tuples(st.integers(0, 200), series, st.integers(0, 9_999)), max_size=20)
    )
    rows = []
    for minute, one, ms in drawn:
        sketch = LatencySketch()
        sketch.add([ms])
        rows.append(SumRow(minute * MINUTE_MS, *one, 1, call=sketch.encoded()))
    stepwise: list[SumRow] = rows
    for span in SPANS:
        stepwise = merged(stepwise, span)
    assert sorted(stepwise) == sorted(merged(rows, DAY_MS))


def test_a_write_whose_reply_was_lost_counts_once(
    ledger: SqlLedger, reader: SumReader, world: World
) -> None:
    sums, store = MinuteSums(), ledger.sums()
    sums.add(NOON, [SMS] * 3)
    rows = sums.unwritten()
    store.put("w1/a", rows)
    store.put("w1/a", rows)  # once more
    sums.not_written(rows)
    sums.add(NOON, [SMS])
    store.put("w1/a", sums.unwritten())
    store.put("w1/a", rows)  # late
    assert counted(reader.last(15 * MINUTE_MS)) == {SMS: 4}


def test_two_lives_of_one_process_add_up(ledger: SqlLedger, reader: SumReader) -> None:
    for life in ("w1/a", "w1/b"):
        sums = MinuteSums()
        sums.add(NOON, [SMS, SMS, MAIL])
        ledger.sums().put(life, sums.unwritten())
    assert counted(reader.last(15 * MINUTE_MS)) == {SMS: 4, MAIL: 2}


def _written_for(ledger: SqlLedger, world: World, minutes: int) -> Iterator[int]:
    """Writes one delivery of two processes each minute. Yields after each."""
    store = ledger.sums()
    for minute in range(minutes):
        for life in ("w1/a", "w2/b"):
            row = SumRow(world.now // MINUTE_MS * MINUTE_MS, *SMS, 1, call="[10,1]")
            store.put(life, [row])
        yield minute
        world.advance(MINUTE_MS)


def test_a_range_is_the_same_before_and_after_the_roll_up(
    ledger: SqlLedger, reader: SumReader, world: World
) -> None:
    rollup = ledger.sum_rollup()
    for minute in _written_for(ledger, world, 40):
        if minute % 3 == 0:
            rollup.run()
            rollup.run()
    for length in (HOUR_MS, 6 * HOUR_MS, 7 * DAY_MS, 60 * DAY_MS):
        read = reader.last(length)
        assert counted(read) == {SMS: 80}, length
        assert {row.minute % read.span for row in read.rows} == {0}
        assert sum(times_in(row.call) for row in read.rows) == 80


def times_in(text: str) -> int:
    sketch = LatencySketch()
    sketch.merge(text)
    return sum(sketch.buckets.values())


def test_sums_that_come_late_reach_every_span(
    ledger: SqlLedger, reader: SumReader, world: World
) -> None:
    rollup = ledger.sum_rollup()
    for _ in _written_for(ledger, world, 30):
        rollup.run()
    ledger.sums().put("w3/c", [SumRow(NOON + MINUTE_MS, *MAIL, 5)])
    world.advance(MINUTE_MS)
    rollup.run()
    for length in (HOUR_MS, 6 * HOUR_MS, 7 * DAY_MS, 60 * DAY_MS):
        assert counted(reader.last(length)) == {SMS: 60, MAIL: 5}


def test_rolled_sums_outlive_those_of_the_processes(
    ledger: SqlLedger, reader: SumReader, world: World
) -> None:
    rollup = ledger.sum_rollup()
    for _ in _written_for(ledger, world, 5):
        pass
    rollup.run()
    world.advance(RAW_KEPT_MS + HOUR_MS)
    rollup.run()
    rollup.forget()
    assert world.rows("SELECT count(*) FROM minute_sums") == [(0,)]
    assert counted(reader.last(DAY_MS)) == {SMS: 10}
    world.advance(3 * DAY_MS)
    rollup.run()
    rollup.forget()
    assert world.rows(f"SELECT count(*) FROM span_sums WHERE span = {MINUTE_MS}") == [(0,)]
    assert counted(reader.last(7 * DAY_MS)) == {SMS: 10}


@pytest.mark.parametrize(
    ("days", "span"), [(1, MINUTE_MS), (3, 10 * MINUTE_MS), (20, HOUR_MS), (100, DAY_MS)]
)
def test_a_short_range_of_long_ago_is_read_from_the_sums_that_are_kept(
    ledger: SqlLedger, reader: SumReader, world: World, days: int, span: int
) -> None:
    rollup = ledger.sum_rollup()
    for _ in _written_for(ledger, world, 20):
        pass
    rollup.run()
    world.advance(days * DAY_MS)
    rollup.run()
    rollup.forget()
    read = reader.between(NOON + 2 * MINUTE_MS, NOON + 18 * MINUTE_MS)
    assert read.span == span
    assert read.start % span == 0
    assert read.start <= NOON + 2 * MINUTE_MS
    assert read.end >= NOON + 18 * MINUTE_MS
    # Two a minute, in whole slots of the span; the range's end is not part of it.
    assert counted(read)[SMS] == (32 if days == 1 else 40)


@pytest.mark.parametrize("days", [0, 1, 3, 20, 100])
def test_an_own_range_ends_where_it_says(
    ledger: SqlLedger, reader: SumReader, world: World, days: int
) -> None:
    """A range that ends on the border of its slots has no slot more, whatever span is still kept."""
    start = NOON // DAY_MS * DAY_MS
    world.advance(DAY_MS - HOUR_MS - NOON % DAY_MS)
    rollup, store = ledger.sum_rollup(), ledger.sums()
    for hour in range(3):  # the last of the day, and two of the next
        store.put("w1/a", [SumRow(world.now, *SMS, 10**hour)])
        world.advance(HOUR_MS)
        rollup.run()
    world.advance(days * DAY_MS)
    rollup.run()
    rollup.forget()
    read = reader.between(start, start + DAY_MS)
    assert (read.start, read.end, counted(read)) == (start, start + DAY_MS, {SMS: 1})
    if days <= 20:
        begin = start + DAY_MS
        read = reader.between(begin, begin + HOUR_MS)
        assert (read.start, read.end, counted(read)) == (begin, begin + HOUR_MS, {SMS: 10})


def test_an_own_range_that_ends_later_than_now_begins_where_it_says(
    ledger: SqlLedger, reader: SumReader, world: World
) -> None:
    for _ in _written_for(ledger, world, 3):
        pass
    ledger.sums().put("w1/a", [SumRow(world.now, *MAIL, 1)])
    read = reader.between(NOON + MINUTE_MS, NOON + HOUR_MS)
    assert (read.start, read.end) == (NOON + MINUTE_MS, world.now + 1)
    assert counted(read) == {SMS: 4, MAIL: 1}, "the minute that begins now is part of it"


@pytest.mark.parametrize(("hours", "every"), [(10, 1), (60, 7)])
def test_an_outage_of_the_roll_up_loses_no_sums(
    ledger: SqlLedger, reader: SumReader, world: World, hours: int, every: int
) -> None:
    rollup, store = ledger.sum_rollup(), ledger.sums()
    for _ in _written_for(ledger, world, 5):
        rollup.run()
    minutes = range(0, 60 * hours, every)
    for _ in minutes:
        store.put("w1/a", [SumRow(world.now // MINUTE_MS * MINUTE_MS, *SMS, 1)])
        world.advance(every * MINUTE_MS)
    rounds = 0
    while world.rows("SELECT rolled_at FROM sum_marks") != [(world.now,)]:
        assert rollup.run() <= 62, "one roll-up makes an hour at most"
        rollup.forget()
        assert counted(reader.last(7 * DAY_MS)) == {SMS: 10 + len(minutes)}, rounds
        rounds += 1
    assert rounds > hours // 2
    while rollup.forget():
        pass
    for length in (7 * DAY_MS, 60 * DAY_MS):
        assert counted(reader.last(length)) == {SMS: 10 + len(minutes)}
    (oldest,) = world.rows("SELECT min(minute) FROM minute_sums")
    assert oldest[0] >= world.now - RAW_KEPT_MS - MINUTE_MS


@pytest.mark.parametrize(
    ("age", "span"),
    [
        (0, MINUTE_MS),
        (2 * DAY_MS - HOUR_MS, MINUTE_MS),
        (2 * DAY_MS, 10 * MINUTE_MS),
        (14 * DAY_MS, HOUR_MS),
        (90 * DAY_MS, DAY_MS),
        (900 * DAY_MS, DAY_MS),
    ],
)
def test_the_shortest_span_that_is_kept(age: int, span: int) -> None:
    assert kept_span(age) == span


def test_the_parts_of_a_range_join_and_its_past_comes_from_its_own_span() -> None:
    now = NOON + 3 * HOUR_MS + 25 * MINUTE_MS + 7_000
    start = (now - 60 * DAY_MS) // DAY_MS * DAY_MS
    parts = list(pieces(start, now, DAY_MS, now - 4_000))
    assert [part.span for part in parts] == [DAY_MS, HOUR_MS, 10 * MINUTE_MS, MINUTE_MS, 0]
    assert (parts[0].start, parts[-1].end) == (start, now)
    assert all(a.end == b.start for a, b in pairwise(parts))
    assert list(pieces(start, now, DAY_MS, 0)) == [Piece(0, start, now)]


@pytest.mark.parametrize("length", [60_000, HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS, 60 * DAY_MS])
def test_a_range_has_few_slots(length: int) -> None:
    assert 1 <= length // span_of(length) <= 170
