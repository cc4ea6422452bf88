"""Passes over the spool: order per key, and failures that hold no other key up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hongyan_client.spool import drain as drain_module
from hongyan_client.spool.listing import ended_lines, row_lines
from hongyan_client.spool.store import DrainOutcome, KeptRecord, StaleDrain
from tests.hongyan_client.spool.making import NEVER, TOPIC, Bench, FakeKafka, envelope, record


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "spool", FakeKafka())
    yield bench
    bench.close()


def keep(bench: Bench, number: int, key: str | None = "a") -> None:
    bench.store.keep([KeptRecord(record(number, key), NEVER)], bench.folder.marker, bench.now)


def test_records_of_a_key_go_in_order_and_leave(bench: Bench) -> None:
    for number in range(50):
        keep(bench, number, "ab"[number % 2])
    assert bench.drain() == 50
    assert bench.kafka.numbers("a") == list(range(0, 50, 2))
    assert bench.kafka.numbers("b") == list(range(1, 50, 2))
    assert bench.kafka.arrived[0].headers == [("n", b"0")]
    assert bench.store.counts().waiting == 0
    assert not bench.folder.marker.waiting


def test_one_record_of_a_key_is_under_way_at_a_time(bench: Bench) -> None:
    for number in range(3):
        keep(bench, number)
    keep(bench, 9, "b")
    bench.kafka.holding = True
    fence = bench.store.take_fence()
    stops = iter([False, False, True])
    bench.drain_pass.run(fence, 20.0, lambda: next(stops))
    assert sorted(int(one.value) for one, _ in bench.kafka.held) == [0, 9]


def test_records_without_a_key_wait_for_none_other(bench: Bench) -> None:
    for number in range(20):
        keep(bench, number, None)
    assert not bench.store.holds(TOPIC, b"a")
    assert bench.drain() == 20
    assert sorted(bench.kafka.numbers(None)) == list(range(20))


def test_a_failed_record_stays_first_of_its_key(bench: Bench) -> None:
    for number in range(3):
        keep(bench, number)
    bench.kafka.away = True
    assert bench.drain() == 0
    (first, *_) = bench.store.rows(10)
    assert (first.attempts, first.last_error) == (1, "timed out")
    bench.kafka.away = False
    assert bench.drain() == 3
    assert bench.kafka.numbers() == [0, 1, 2]


def test_a_lost_answer_repeats_the_same_record(bench: Bench) -> None:
    keep(bench, 1)
    bench.kafka.lose_answers = True
    bench.drain()
    bench.kafka.lose_answers = False
    bench.drain()
    assert bench.kafka.arrived[0] == bench.kafka.arrived[1]
    assert bench.kafka.numbers() == [1, 1]


def test_one_missing_topic_holds_no_other_up(bench: Bench) -> None:
    bench.kafka.missing = {"gone"}
    for number in range(700):
        kept = KeptRecord(record(number, str(number), "gone"), NEVER)
        bench.store.keep([kept], bench.folder.marker, bench.now)
    for number in range(30):
        keep(bench, number)
    for _ in range(3):
        bench.drain()
    assert bench.kafka.numbers() == list(range(30))
    assert bench.store.counts().waiting == 700


def test_a_record_that_no_try_can_deliver_is_parked_and_its_key_goes_on(bench: Bench) -> None:
    bench.kafka.refused = {TOPIC}
    keep(bench, 0)
    bench.drain()
    bench.kafka.refused = set()
    keep(bench, 1)
    assert bench.drain() == 1
    counts = bench.store.counts()
    assert (counts.waiting, counts.parked) == (0, 1)
    assert bench.store.rows(5)[0].last_error == "too large"
    assert bench.store.unpark(bench.store.take_fence()) == 1
    assert bench.drain() == 1


def test_an_expired_record_leaves_with_its_reason_and_stays_listed(bench: Bench) -> None:
    kept = KeptRecord(envelope("order-1", "+8613800000001", bench.now), bench.now + 1_000)
    bench.store.keep([kept], bench.folder.marker, bench.now)
    keep(bench, 2)
    bench.now += 1_000
    assert bench.drain() == 1
    ((_id, topic, message_id, receivers, reason, *_),) = bench.store.ended(10)
    assert (topic, message_id, reason) == (TOPIC, "order-1", "expired")
    assert receivers == "+86138***0001"
    assert bench.store.counts().counters["expired"] == 1


def test_a_drain_that_was_overtaken_writes_nothing(bench: Bench) -> None:
    keep(bench, 1)
    fence = bench.store.take_fence()
    bench.store.take_fence()
    (row,) = bench.store.rows(1)
    for write in (
        lambda: bench.store.settle(fence, DrainOutcome([row.id])),
        lambda: bench.store.expire(fence, NEVER),
        lambda: bench.store.unpark(fence),
    ):
        with pytest.raises(StaleDrain):
            write()
    assert bench.store.counts().waiting == 1


def test_a_row_whose_bytes_changed_is_parked_and_never_sent(bench: Bench) -> None:
    keep(bench, 1)
    keep(bench, 2, "b")
    with bench.store._keeper.transaction() as connection:
        connection.execute("UPDATE records SET value = x'39' WHERE id = 1")
    bench.drain()
    bench.drain()
    assert [int(one.value) for one in bench.kafka.arrived] == [2]
    assert bench.store.rows(1)[0].last_error == drain_module.DAMAGED
    assert bench.store.counts().parked == 1


@pytest.mark.parametrize(
    "change",
    [
        "topic = CAST(x'ff6869' AS TEXT)",
        "key = CAST(key AS TEXT)",
        "value = CAST(value AS TEXT)",
        "headers = CAST(headers AS TEXT)",
        "expires_at = 'soon'",
    ],
)
def test_a_row_that_cannot_be_read_holds_no_other_up(bench: Bench, change: str) -> None:
    for number in range(3):
        keep(bench, number, "abc"[number])
    with bench.store._keeper.transaction() as connection:
        connection.execute(f"UPDATE records SET {change} WHERE id = 2")
    bench.drain()
    bench.drain()
    assert sorted(int(one.value) for one in bench.kafka.arrived) == [0, 2]
    (row,) = row_lines(bench.store, 10)
    assert (row["state"], row["last_error"]) == ("parked", drain_module.DAMAGED)


def test_a_row_that_cannot_be_read_expires_like_others(bench: Bench) -> None:
    bench.store.keep([KeptRecord(record(1), bench.now + 1)], bench.folder.marker, bench.now)
    keep(bench, 2, "b")
    with bench.store._keeper.transaction() as connection:
        change = "topic = CAST(x'ff6869' AS TEXT), value = CAST(value AS TEXT)"
        connection.execute(f"UPDATE records SET {change} WHERE id = 1")
    bench.now += 1_000
    assert bench.drain() == 1
    (ended,) = ended_lines(bench.store.ended(10))
    assert (ended["id"], ended["reason"]) == (1, "expired")


def test_a_full_buffer_burns_no_attempt(bench: Bench) -> None:
    keep(bench, 1)
    bench.kafka.full = True
    assert bench.drain() == 0
    assert bench.store.rows(1)[0].attempts == 0
