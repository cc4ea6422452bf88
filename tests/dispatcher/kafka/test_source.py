"""The source's rules, one by one, on a scripted consumer. The same on real Kafka: tests/integration."""

from __future__ import annotations

import pytest

from dispatcher.kafka.offset_metadata import OffsetRange, encode
from dispatcher.kafka.source import SourceFailed
from dispatcher.kafka.unreadable import TRIES
from tests.dispatcher.fakes import LANE, TOPIC, Bench, KafkaError, Message, Place, message


def last_commit(bench: Bench) -> tuple[int, str]:
    place = bench.consumer.commits[-1][0]
    return place.offset, place.metadata


def test_the_lowest_contiguous_completed_offset_is_what_gets_committed() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0), message(1), message(2))
    records = bench.inbox.records
    bench.done.put([records[0], records[2]])
    bench.step()
    assert last_commit(bench) == (1, encode(1, [OffsetRange(2, 3)]))


def test_a_successor_does_not_look_at_what_the_metadata_says_is_done() -> None:
    bench = Bench()
    bench.consumer.committed_places = [Place(TOPIC, 0, 1, encode(1, [OffsetRange(2, 3)]))]
    bench.assign(0)
    bench.step(message(1), message(2), message(3))
    assert [r.offset for r in bench.inbox.records] == [1, 3]


def test_foreign_metadata_is_ignored() -> None:
    bench = Bench()
    bench.consumer.committed_places = [Place(TOPIC, 0, 1, "somebody else's")]
    bench.assign(0)
    bench.step(message(1), message(2))
    assert [r.offset for r in bench.inbox.records] == [1, 2]


def test_a_failed_commit_leaves_the_position_dirty_and_it_is_committed_again() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.done.put(bench.inbox.records)
    bench.step()
    bench.answer_commit(KafkaError("ILLEGAL_GENERATION"))
    bench.step()
    assert [c[0].offset for c in bench.consumer.commits] == [1, 1]
    bench.answer_commit()
    bench.step()
    assert len(bench.consumer.commits) == 2, "an acknowledged position is not sent again"


def test_a_commit_that_raises_is_not_fatal() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.done.put(bench.inbox.records)
    bench.consumer.commit_error = RuntimeError("rebalance in progress")
    bench.step()
    bench.consumer.commit_error = None
    bench.step()
    assert last_commit(bench)[0] == 1


def test_an_unanswered_commit_is_given_up_and_sent_again() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.done.put(bench.inbox.records)
    bench.step()
    bench.step()
    assert len(bench.consumer.commits) == 1, "never two at a time"
    bench.time += 11
    bench.step()
    assert len(bench.consumer.commits) == 2


def test_a_completion_that_arrives_during_a_commit_is_committed_next() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0), message(1))
    first, second = bench.inbox.records
    bench.done.put([first])
    bench.step()
    bench.done.put([second])
    bench.step()
    bench.answer_commit()
    bench.step()
    assert [c[0].offset for c in bench.consumer.commits] == [1, 2]


def test_nothing_is_committed_for_a_partition_that_was_revoked() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.revoke(0)
    bench.done.put(bench.inbox.records)
    bench.step()
    bench.step()
    assert bench.consumer.commits == []


def test_work_that_ends_before_the_revoke_is_committed_in_it() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.done.put(bench.inbox.records)
    bench.revoke(0)
    assert last_commit(bench)[0] == 1


def test_old_work_of_a_partition_lost_and_regained_moves_no_offset() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    old = bench.inbox.records[0]
    bench.lose(0)
    bench.assign(0)
    bench.step(message(0))
    bench.done.put([old])
    bench.step()
    assert bench.consumer.commits == [], "the new assignment has not finished it"
    bench.done.put([bench.inbox.records[1]])
    bench.step()
    assert last_commit(bench)[0] == 1


def test_a_lost_partition_is_not_committed_at_all() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.done.put(bench.inbox.records)
    bench.lose(0)
    bench.step()
    assert bench.consumer.commits == []


def unreadable(offset: int) -> Message:
    return Message(offset, b"the client's text", error=KafkaError("_BAD_COMPRESSION"))


def test_an_unreadable_batch_is_passed_over_offset_by_offset_after_several_tries_each() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(9))
    for _ in range(TRIES - 1):
        bench.step(unreadable(10))
    assert bench.inbox.poisons == []
    bench.step(unreadable(10))
    (poison,) = bench.inbox.poisons
    assert (poison.offset, poison.code, poison.payload) == (10, "unreadable_batch", None)
    assert bench.consumer.calls[-1] == "seek 0 11"
    for _ in range(TRIES):
        bench.step(unreadable(10))
    assert [p.offset for p in bench.inbox.poisons] == [10, 11], "the same batch has more records"
    bench.done.put([*bench.inbox.records, *bench.inbox.poisons])
    bench.step(message(12))
    assert last_commit(bench)[0] == 12


def test_reports_of_an_unreadable_batch_that_come_at_once_are_one_try() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(*[unreadable(10)] * 50)
    bench.step(*[unreadable(10)] * 50)
    assert bench.inbox.poisons == []


def test_a_batch_that_can_be_read_after_all_is_read() -> None:
    bench = Bench()
    bench.assign(0)
    for _ in range(TRIES - 1):
        bench.step(unreadable(10))
    bench.step(message(10))
    assert [r.offset for r in bench.inbox.records] == [10]
    assert bench.inbox.poisons == []


def test_what_a_refused_member_held_is_not_committed_by_its_successor() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.done.put(bench.inbox.records)
    bench.consumer.on_refused()
    bench.step()
    assert bench.consumer.commits == []


def test_a_record_given_back_keeps_its_offset() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0), message(1))
    for record in bench.inbox.records:
        record.given_back = record.offset == 0
    bench.done.put(bench.inbox.records)
    bench.step()
    assert last_commit(bench) == (0, encode(0, [OffsetRange(1, 2)]))


def test_partitions_pause_at_the_limit_and_resume_at_half() -> None:
    bench = Bench(max_records=4)
    bench.assign(0)
    bench.step(*(message(o) for o in range(4)))
    bench.step()
    assert bench.consumer.paused == [(TOPIC, 0)]
    bench.done.put(bench.inbox.records[:1])
    bench.step()
    assert bench.consumer.paused == [(TOPIC, 0)], "not at the first place that comes free"
    bench.done.put(bench.inbox.records[1:3])
    bench.step()
    assert bench.consumer.paused == []


def test_a_resumed_lane_is_fetched_at_once_by_asking_its_brokers() -> None:
    bench = Bench(max_records=2)
    bench.assign(0, 1)
    bench.step(message(0), message(1))
    bench.step()
    bench.consumer.calls.clear()
    bench.done.put(bench.inbox.records)
    bench.step()
    assert bench.consumer.calls == ["resume", "ask 0", "ask 1"]


def test_bytes_pause_a_lane_as_records_do() -> None:
    bench = Bench(max_bytes=500)
    bench.assign(0)
    bench.step(message(0), message(1), message(2))
    bench.step()
    assert bench.consumer.paused == [(TOPIC, 0)]


def test_a_partition_assigned_while_its_lane_is_paused_is_paused_too() -> None:
    bench = Bench(max_records=2)
    bench.assign(0)
    bench.step(message(0), message(1))
    bench.step()
    bench.assign(1)
    assert sorted(bench.consumer.paused) == [(TOPIC, 0), (TOPIC, 1)]


def test_a_regained_partition_is_resumed_though_its_pause_survived() -> None:
    bench = Bench()
    bench.consumer.paused = [(TOPIC, 0)]
    bench.assign(0)
    assert bench.consumer.paused == []


def test_lanes_whose_ledger_is_away_are_paused_and_come_back() -> None:
    bench = Bench()
    bench.assign(0)
    bench.source.close_lanes(frozenset({LANE}))
    bench.step()
    assert bench.consumer.paused == [(TOPIC, 0)]
    bench.source.close_lanes(frozenset())
    bench.step()
    assert bench.consumer.paused == []


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"{", "not_json"),
        (None, "not_json"),
        (b'{"v":9}', "unknown_version"),
        (b"x" * (1 << 20) + b"y", "too_large"),
    ],
)
def test_poison_goes_to_the_dead_letters_and_holds_its_offset(
    value: bytes | None, code: str
) -> None:
    bench = Bench(max_bytes=1 << 30)
    bench.assign(0)
    bench.step(Message(0, value, key=b"k", headers=[("hongyan-id", b"x")]), message(1))
    (poison,) = bench.inbox.poisons
    assert (poison.code, poison.payload, poison.key) == (code, value, b"k")
    bench.done.put(bench.inbox.records)
    bench.step()
    assert last_commit(bench)[0] == 0, "not acknowledged by the dead-letter topic yet"
    bench.answer_commit()
    bench.done.put([poison])
    bench.step()
    assert last_commit(bench)[0] == 2


@pytest.mark.parametrize("value", [message(0).value(), b"{", None])
def test_a_record_whose_headers_cannot_be_read_is_poison_without_them(value: bytes | None) -> None:
    bench = Bench()
    bench.assign(0)
    odd = Message(0, value, key=b"k", headers=SystemError("returned a result with an exception"))
    bench.step(odd, message(1))
    (poison,) = bench.inbox.poisons
    assert (poison.code, poison.payload, poison.key) == ("unreadable_headers", value, b"k")
    assert (poison.headers, odd.asked) == ([], 1)
    assert [record.offset for record in bench.inbox.records] == [1]


def test_headers_are_asked_for_once_a_message() -> None:
    bench = Bench()
    bench.assign(0)
    trace = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    good = Message(0, message(0).value(), headers=trace)
    bad = Message(1, b"{", headers=[("hongyan-id", b"x")])
    bench.step(good, bad)
    assert (good.asked, bad.asked) == (1, 1)
    assert bench.inbox.records[0].traceparent == trace[0][1].decode()
    assert bench.inbox.poisons[0].headers == [("hongyan-id", b"x")]


def test_key_and_headers_of_poison_count_among_the_bytes_in_the_worker() -> None:
    bench = Bench(max_bytes=1 << 20)
    bench.assign(0)
    heavy = [("x", b"a" * 600_000)]
    bench.step(Message(0, b"{", headers=heavy))
    bench.step()
    assert bench.consumer.paused == []
    bench.step(Message(1, b"{", headers=heavy))
    bench.step()
    assert bench.consumer.paused == [(TOPIC, 0)]
    bench.done.put(bench.inbox.poisons)
    bench.step()
    assert bench.consumer.paused == []


@pytest.mark.parametrize(
    "value",
    [b"a" * 900_000, b"00-1-2-01", b"\xff\xfe", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01"],
)
def test_what_is_no_trace_context_goes_into_no_event(value: bytes) -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(Message(0, message(0).value(), headers=[("traceparent", value)]))
    assert [record.traceparent for record in bench.inbox.records] == [None]


def test_an_account_that_serves_not_this_lane_is_poison() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0, account="nobody"))
    assert bench.inbox.poisons[0].code == "unknown_account"


def test_a_channel_other_than_the_topics_is_poison() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0, channel="sms"), message(1, kind="marketing"))
    assert [p.code for p in bench.inbox.poisons] == ["wrong_topic", "wrong_topic"]


def test_offsets_reset_backwards_are_tracked_afresh() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(5))
    bench.done.put(bench.inbox.records)
    bench.step()
    bench.step(message(0))
    assert [r.offset for r in bench.inbox.records] == [5, 0]
    bench.answer_commit()
    bench.done.put(bench.inbox.records[1:])
    bench.step()
    assert last_commit(bench)[0] == 1


def test_quiet_takes_nothing_more_and_goes_on_committing() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(0))
    bench.source.quiet()
    bench.step(message(1))
    bench.done.put(bench.inbox.records)
    bench.step()
    assert len(bench.inbox.records) == 1
    assert last_commit(bench)[0] == 1


def test_a_fatal_client_error_is_loud() -> None:
    bench = Bench()
    bench.assign(0)
    with pytest.raises(SourceFailed, match="cannot go on"):
        bench.step(Message(0, error=KafkaError("FENCED_INSTANCE_ID", fatal=True)))


def test_a_fatal_error_that_denies_being_fatal_is_loud() -> None:
    bench = Bench()
    bench.assign(0)
    with pytest.raises(SourceFailed, match="cannot go on"):
        bench.step(Message(0, error=KafkaError("_FATAL", fatal=False)))


def test_harmless_client_errors_pass() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(Message(0, error=KafkaError("UNKNOWN_TOPIC_OR_PART")), message(0))
    assert len(bench.inbox.records) == 1


def test_nothing_is_committed_before_anything_is_done() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(7))
    bench.step()
    assert bench.consumer.commits == []


def test_a_lane_without_an_account_is_read_and_its_records_are_dead_letters() -> None:
    bench = Bench(accounts=frozenset())
    bench.assign(0)
    bench.step(message(0))
    assert [poison.code for poison in bench.inbox.poisons] == ["unknown_lane"]
