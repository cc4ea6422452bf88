"""What one lane has received and not yet claimed."""

from __future__ import annotations

from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.backlog import Backlog, KeyedBacklog
from dispatcher.pipeline.work import Assignment, KafkaRecord, PartitionState, Work
from message.delivery import deliveries_of
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, notification


def expand(record: KafkaRecord) -> list[Work]:
    found = deliveries_of(record.notification, record.payload, expires_at=NOW_MS)
    return [Work(delivery, record) for delivery in found]


ASSIGNMENT = Assignment(TOPIC, 0, LANE, Offsets())


def record(offset: int, key: str | None = None, receivers: int = 1) -> KafkaRecord:
    names = [f"r{n}" for n in range(receivers)]
    made = notification(offset, ordering_key=key, receivers=names)
    return KafkaRecord(ASSIGNMENT, offset, made, b"", NOW_MS, None)


def offsets_of(works: list[Work]) -> list[int]:
    return [work.record.offset for work in works]


def test_records_are_expanded_only_as_far_as_there_is_room() -> None:
    backlog = Backlog(expand)
    backlog.add(record(0, receivers=5))
    backlog.add(record(1, receivers=5))
    assert offsets_of(backlog.take(3)) == [0, 0, 0]
    assert offsets_of(backlog.take(4)) == [0, 0, 1, 1]


def test_one_record_per_key_at_a_time_and_other_keys_are_not_held_up() -> None:
    backlog = KeyedBacklog(expand)
    first, second, other = record(0, "a"), record(1, "a"), record(2, "b")
    for each in (first, second, other):
        backlog.add(each)
    assert offsets_of(backlog.take(10)) == [0, 2]
    backlog.done(first)
    assert offsets_of(backlog.take(10)) == [1]


def test_a_key_is_free_again_after_its_last_record() -> None:
    backlog = KeyedBacklog(expand)
    only = record(0, "a")
    backlog.add(only)
    backlog.take(1)
    backlog.done(only)
    backlog.add(record(1, "a"))
    assert offsets_of(backlog.take(1)) == [1]


def test_a_null_key_orders_nothing() -> None:
    backlog = KeyedBacklog(expand)
    for offset in range(3):
        backlog.add(record(offset))
    assert offsets_of(backlog.take(10)) == [0, 1, 2]


def test_records_of_a_leaving_partition_are_passed_over_and_named() -> None:
    leaving = Assignment(TOPIC, 1, LANE, Offsets())
    backlog = KeyedBacklog(expand)
    gone = KafkaRecord(leaving, 7, notification(7, ordering_key="a"), b"", NOW_MS, None)
    backlog.add(gone)
    leaving.state = PartitionState.REVOKING
    assert backlog.take(10) == []
    assert backlog.dropped() == [gone]
    backlog.add(record(0, "a"))
    assert offsets_of(backlog.take(10)) == [0], "the key did not stay taken"


def test_what_is_begun_of_a_leaving_partition_is_forgotten_and_nothing_else() -> None:
    leaving = Assignment(TOPIC, 1, LANE, Offsets())
    backlog = Backlog(expand)
    gone = KafkaRecord(leaving, 7, notification(7, receivers=["a", "b", "c"]), b"", NOW_MS, None)
    backlog.add(gone)
    backlog.add(record(0, receivers=2))
    assert offsets_of(backlog.take(1)) == [7]
    assert backlog.leave() == []
    leaving.state = PartitionState.REVOKING
    assert offsets_of(backlog.leave()) == [7, 7]
    assert offsets_of(backlog.take(10)) == [0, 0]


def test_what_is_begun_and_unclaimed_comes_back_when_all_is_abandoned() -> None:
    backlog = Backlog(expand)
    backlog.add(record(0, receivers=3))
    backlog.add(record(1))
    backlog.take(1)
    assert offsets_of(backlog.abandon()) == [0, 0]
    assert len(backlog) == 0
