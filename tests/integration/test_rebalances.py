"""Partitions that come and go: scenarios 1 to 6, 9 to 12 and 35 of the list in docs/scenarios.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness import LANE, Fleet, await_, notifications
from tests.harness.wire import Place

MakeFleet = Callable[..., Fleet]
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
def test_work_in_flight_at_a_revoke_ends_is_committed_and_not_repeated(
    fleet: MakeFleet, protocol: str
) -> None:
    one = fleet(protocol=protocol, policy={LANE: {"threads": 16, "timeout_ms": 30_000}})
    one.slow(3_000)
    old, *_ = one.start(1)
    one.send(notifications(32))
    one.await_in_flight(16)
    new = one.worker()
    one.await_shared_out([old, new])
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.states["SENT"], verdict.doubled) == (32, [])
    assert [e["left_to_ledger"] for e in old.events("partitions_revoked")] == [0]


@PROTOCOLS
@pytest.mark.soak(cases="classic")
def test_work_that_outlives_the_revoke_settles_and_commits_nothing(
    fleet: MakeFleet, protocol: str
) -> None:
    one = fleet(protocol=protocol, policy={LANE: {"timeout_ms": 30_000}})
    one.slow(4_000)
    worker = one.worker(fault="revoke_drain_is_short").wait_ready()
    one.await_shared_out([worker])
    one.send(notifications(12))
    one.await_in_flight(12)
    with one.intruder() as intruder:
        before = one.committed()
        one.await_states(SENT=12)
        await_(lambda: _commits_elsewhere(one, intruder.held), what="it commits what it kept")
        after = one.committed()
        taken = [s.place for s in one.sent if s.place in intruder.held]
        assert taken, "no record stood in a partition that was taken away"
        assert all(after[place] == before[place] for place in taken)
        assert any(e["left_to_ledger"] for e in worker.events("partitions_revoked"))
    one.await_committed()
    assert one.verify().states == {"SENT": 12}


def test_a_partition_regained_while_its_old_work_still_runs_is_neither_doubled_nor_skipped(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"timeout_ms": 30_000}})
    one.slow(6_000)
    worker = one.worker(fault="revoke_drain_is_short").wait_ready()
    one.await_shared_out([worker])
    one.send(notifications(12))
    one.await_in_flight(12)
    with one.intruder():
        pass
    one.await_shared_out([worker])
    assert one.accepted() == one.books.states()["IN_FLIGHT"] == 12, "the old work still runs"
    one.await_states(SENT=12)
    one.await_committed()
    assert one.verify().doubled == []
    await_(
        lambda: worker.metric("duplicates") > 0, what="the second look found the first one's rows"
    )


def test_a_worker_thought_dead_commits_nothing_for_what_it_lost_but_settles_it(
    fleet: MakeFleet,
) -> None:
    one = fleet(lease_s=60, session_timeout_s=3)
    one.slow(500)
    worker = one.worker().wait_ready()
    one.await_shared_out([worker])
    one.send(notifications(12))
    one.await_in_flight(12)
    worker.pause()
    with one.intruder() as intruder:
        everything = {Place(one.topics[0], n) for n in range(4)}
        await_(lambda: intruder.held == everything, what="all partitions went over")
        worker.resume()
        one.await_states(SENT=12)
        await_(lambda: worker.events("partitions_lost"), what="it knows what it lost")
        await_(lambda: _commits_elsewhere(one, intruder.held), what="it commits what it got back")
        held = set(intruder.held)
        assert {one.committed()[p].offset for p in held} == {-1}, "a commit by the dead"
    one.await_committed()
    assert one.verify().doubled == []


def test_a_loop_that_stood_still_past_max_poll_interval_comes_back_and_commits_nothing_old(
    fleet: MakeFleet,
) -> None:
    limits = {"max.poll.interval.ms": 3_000, "heartbeat.interval.ms": 500}
    one = fleet(settings={"kafka": {"client": limits}}, session_timeout_s=3, lease_s=60)
    worker = one.worker(fault="source_stands_still").wait_ready()
    one.await_shared_out([worker])
    one.slow(300)
    one.send(notifications(12))
    one.await_in_flight(1)
    worker.poke()
    with one.intruder() as intruder:
        await_(lambda: len(intruder.held) == 4, what="its partitions went over")
        # An eager assignor's revoke comes after the member has left: its last commit is refused.
        gone = ("partitions_lost", "partitions_revoked")
        await_(lambda: any(map(worker.events, gone)), what="it knows that it lost them")
        one.await_states(SENT=12)
        await_(lambda: _commits_elsewhere(one, intruder.held), what="it commits what it got back")
        held = set(intruder.held)
        assert {one.committed()[place].offset for place in held} == {-1}
    one.await_committed()
    verdict = one.verify()
    assert (verdict.states, verdict.doubled) == ({"SENT": 12}, [])


def test_a_rebalance_while_paused_leaves_nothing_paused_for_ever(fleet: MakeFleet) -> None:
    lane = {"threads": 2, "queue": 0, "max_in_flight": 4}
    one = fleet(policy={LANE: lane})
    one.slow(100)
    old, *_ = one.start(1)
    one.send(notifications(60))
    await_(lambda: old.metric("pauses") > 0, what="the lane is paused")
    new = one.worker().wait_ready()
    one.await_shared_out([old, new])
    one.send(notifications(40))
    one.await_settled()
    one.await_committed()
    assert one.verify().states == {"SENT": 100}
    await_(lambda: new.metric("settled") > 0, what="the new one took part")


@PROTOCOLS
@pytest.mark.timeout(240)
def test_a_storm_of_rebalances_loses_nothing_doubles_nothing_and_locks_nothing(
    fleet: MakeFleet, protocol: str
) -> None:
    one = fleet(protocol=protocol)
    one.slow(20)
    workers = one.start(2)
    for _ in range(3):
        one.send(notifications(60))
        with one.intruder():
            one.send(notifications(20))
    one.await_shared_out(workers)
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.states, verdict.doubled) == ({"SENT": 240}, [])
    assert [w.healthz()[0] for w in workers] == [200, 200]


@PROTOCOLS
@pytest.mark.timeout(240)
def test_a_rolling_restart_under_load_loses_and_doubles_nothing(
    fleet: MakeFleet, protocol: str
) -> None:
    one = fleet(protocol=protocol, partitions=6)
    one.slow(30)
    workers = one.start(3)
    for worker in workers:
        one.send(notifications(150))
        assert worker.stop() == 0
        one.worker().wait_ready()
    one.send(notifications(150))
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.states, verdict.doubled) == ({"SENT": 600}, []), "nor is anything in doubt"


def test_partitions_added_while_it_runs_are_found_and_served(fleet: MakeFleet) -> None:
    one = fleet(partitions=2)
    (worker,) = one.start(1)
    one.wire.add_partitions(one.topics[0], 4)
    await_(lambda: len(one.wire.members()[worker.id]) == 4, what="the new ones are assigned")
    one.send(notifications(4), partition=3)
    one.await_settled()
    one.await_committed()
    one.verify()


def test_a_topic_made_after_the_worker_started_is_served_within_seconds(fleet: MakeFleet) -> None:
    one = fleet(make_topics=False, protocol="consumer")
    worker = one.worker()
    await_(lambda: one.topics[0] in (worker.readyz()[1]["reason"] or ""), what="it waits")
    one.apply_topics()
    one.send(notifications(4))
    one.await_settled(timeout=20)
    one.await_committed()
    one.verify()


def test_a_topic_deleted_and_made_again_is_read_from_its_new_start(fleet: MakeFleet) -> None:
    one = fleet(partitions=1)
    (worker,) = one.start(1)
    one.send(notifications(20))
    one.await_settled()
    one.await_committed()
    one.verify()
    one.sent.clear()
    one.wire.delete_topic(one.topics[0])
    one.apply_topics()
    one.send(notifications(5))
    one.await_settled()
    one.await_committed()
    assert one.verify().states == {"SENT": 5}
    assert worker.running


def _commits_elsewhere(one: Fleet, held: set[Place]) -> bool:
    """Whether all that was sent to partitions other than these is committed; only then does it say
    anything that nothing was committed for these."""
    committed = one.committed()
    ends = one.wire.ends(one.topics[0])
    others = {s.place for s in one.sent} - held
    return bool(others) and all(committed[place].offset == ends[place] for place in others)
