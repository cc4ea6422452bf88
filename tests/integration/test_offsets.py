"""What the log does to offsets, and what commit metadata says: scenarios 17 to 23."""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.kafka.offset_metadata import OffsetRange, encode
from message.vocabulary import dead_letter_topic
from simulator import Faults
from tests.harness import LANE, Fleet, await_, notifications
from tests.harness.wire import Place

MakeFleet = Callable[..., Fleet]
HANGING = Faults(receiver="stuck", hang=1.0)


def test_what_retention_removed_above_the_committed_offset_is_passed_over(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    worker = one.worker().wait_ready()
    one.send(notifications(10))
    one.await_committed()
    worker.stop()
    removed = one.wire.send(notifications(5))
    one.send(notifications(5))
    one.wire.truncate(one.topics[0], 0, before=15)
    worker = one.worker().wait_ready()
    one.await_settled()
    one.await_committed()
    assert one.verify().states == {"SENT": 15}
    assert not one.books.rows(key for record in removed for key in record.keys)
    await_(lambda: worker.events("records_removed"), what="it says what was removed")
    (told,) = worker.events("records_removed")
    assert (told["topic"], told["partition"]) == (one.topics[0], 0)
    assert (told["first"], told["last"], told["offsets"]) == (10, 14, 5)
    worker.await_metric("records_removed", 5, lane=LANE)
    await_(lambda: any(e["rule"] == "records_removed" for e in worker.events("alert")))
    assert any(b'"stage":"removed"' in event for event in one.wire.trace())


def test_what_was_removed_while_the_worker_ran_is_told_too(fleet: MakeFleet) -> None:
    one = fleet(partitions=1, policy={LANE: {"threads": 1, "queue": 0, "max_in_flight": 2}})
    one.slow(2_000)
    worker = one.worker().wait_ready()
    one.send(notifications(4))
    one.await_in_flight(1)
    one.wire.send(notifications(3_000))
    end = one.wire.ends(one.topics[0])[Place(one.topics[0], 0)]
    one.wire.truncate(one.topics[0], 0, before=end)
    one.slow(0)
    one.send(notifications(3))
    await_(lambda: worker.events("records_removed"), what="it says what was removed")
    (told,) = worker.events("records_removed")
    assert told["last"] == end - 1
    assert told["offsets"] > 1_000
    worker.await_metric("records_removed", told["offsets"])


def test_a_log_that_ends_below_the_committed_offset_is_told(fleet: MakeFleet) -> None:
    one = fleet(partitions=1)
    one.wire.commit_as_foreigner(Place(one.topics[0], 0), 500)
    one.send(notifications(5))
    worker = one.worker().wait_ready()
    one.await_settled()
    await_(lambda: worker.events("log_began_anew"), what="it says so")
    (told,) = worker.events("log_began_anew")
    assert (told["committed"], told["end"]) == (500, 5)
    assert worker.events("records_removed") == []


def test_offsets_set_back_to_the_start_send_nothing_again_with_redis_or_without(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    worker = one.worker().wait_ready()
    one.send(notifications(30))
    for by, redis_url in (("redis", one.ground.redis_url), ("ledger", "")):
        one.await_committed()
        worker.stop()
        one.wire.commit_as_foreigner(Place(one.topics[0], 0), 0)
        worker = one.worker(REDIS__URL=redis_url).wait_ready()
        one.await_committed()
        worker.await_metric("duplicates", 30, by=by)
        assert worker.metric("received") == 30
    assert one.verify().doubled == []


def test_gaps_that_compaction_left_hold_no_offset(fleet: MakeFleet) -> None:
    one = fleet(make_topics=False, partitions=1)
    one.wire.make_topic(dead_letter_topic(one.wire.prefix), 1)
    one.wire.make_topic(
        one.topics[0],
        1,
        cleanup_policy="compact",
        segment_ms="50",
        min_cleanable_dirty_ratio="0.01",
    )
    written = one.wire.send(notifications(20, ordering_key=lambda n: f"key-{n % 2}"))

    def compacted() -> bool:
        one.wire.send([b"rolls the segment"], key=b"roll")
        return len(one.wire.read(one.topics[0])) < len(written)

    await_(compacted, what="the log is compacted")
    left = {message.offset() for message in one.wire.read(one.topics[0])}
    one.sent = [record for record in written if record.offset in left]
    worker = one.worker().wait_ready()
    one.await_settled()
    one.await_committed()
    assert 0 < one.verify().states["SENT"] < len(written)
    worker.stop()
    assert worker.events("records_removed") == [], "what compaction removes is no loss"


def test_aborted_records_are_not_sent_and_transaction_markers_hold_no_offset(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    aborted, committed = notifications(10), notifications(10)
    one.wire.transaction(LANE, [(aborted, False), (committed, True), (aborted, False)])
    worker = one.worker().wait_ready()
    one.send(notifications(1))
    one.await_settled()
    one.await_committed()
    one.verify()
    worker.stop()
    assert worker.events("records_removed") == [], "a marker is no record"
    assert set(one.order()) == {n.id for n in committed} | {
        record.notification.id for record in one.sent if record.notification
    }


def test_foreign_corrupt_and_stale_metadata_is_ignored(fleet: MakeFleet) -> None:
    whole = encode(0, [OffsetRange(1, 6)])
    foreign = [
        "somebody else's",
        whole[:-6],
        whole[:8] + "A" + whole[9:],
        encode(3, [OffsetRange(4, 6)]),
    ]
    one = fleet(partitions=len(foreign))
    for number, metadata in enumerate(foreign):
        one.wire.commit_as_foreigner(Place(one.topics[0], number), 0, metadata)
        one.send(notifications(6), partition=number)
    one.worker().wait_ready()
    one.await_settled()
    one.await_committed()
    assert one.verify().states == {"SENT": 24}


def test_a_successor_looks_only_at_what_was_not_done(fleet: MakeFleet) -> None:
    one = fleet(partitions=1, policy={LANE: {"timeout_ms": 60_000}})
    one.provider.control(rules=[HANGING])
    worker = one.worker().wait_ready()
    one.send(notifications(1, receivers=["stuck-1"]))
    one.send(notifications(200))
    one.await_states(SENT=200, IN_FLIGHT=1)
    place = Place(one.topics[0], 0)
    await_(lambda: one.committed()[place].covers(200), what="the runs are in the metadata")
    assert one.committed()[place].offset == 0, "the stuck one holds the watermark"
    worker.kill()
    heir = one.worker().wait_ready()
    one.await_states(SENT=200, UNKNOWN=1)
    one.await_committed()
    assert heir.metric("received") == 1
    assert one.verify().doubled == []


def test_a_stuck_lowest_offset_holds_up_nobody_and_shows_its_age(fleet: MakeFleet) -> None:
    one = fleet(partitions=1, policy={LANE: {"timeout_ms": 6_000, "max_in_flight": 50}})
    one.provider.control(rules=[HANGING])
    worker = one.worker().wait_ready()
    one.send(notifications(1, receivers=["stuck-1"]))
    one.send(notifications(500))
    one.await_states(SENT=500, IN_FLIGHT=1)
    place = Place(one.topics[0], 0)
    await_(
        lambda: one.committed()[place].runs == [OffsetRange(1, 501)],
        what="one run above the stuck offset, however many are done",
    )
    await_(lambda: worker.metric("oldest_uncommitted_seconds") > 2, what="the age shows")
    assert one.committed()[place].offset == 0
    one.await_states(SENT=500, UNKNOWN=1)
    one.await_committed()
    one.verify()


def test_more_runs_than_metadata_holds_cost_look_ups_and_no_double(fleet: MakeFleet) -> None:
    one = fleet(partitions=1)
    dead = dead_letter_topic(one.wire.prefix)
    one.wire.configure_topic(dead, max_message_bytes="1")  # refuses, so poison holds its offset
    one.send(item for good in notifications(2_000) for item in (b"poison", good))
    worker = one.worker().wait_ready()
    one.await_settled()
    place = Place(one.topics[0], 0)
    await_(lambda: len(one.committed()[place].runs) > 1_000, what="many runs in a commit")
    assert one.committed()[place].offset == 0
    assert worker.metric("commits", result="failed") == 0
    worker.kill()
    heir = one.worker().wait_ready()
    await_(lambda: heir.metric("received") > 0, what="it looks again at what did not fit")
    one.wire.configure_topic(dead, max_message_bytes="100000")
    one.await_committed()
    heir.await_metric("duplicates", heir.metric("received"))
    assert heir.metric("received") < 2_000
    assert one.verify().doubled == []
