"""Leases, fences and clocks: scenarios 33 and 36, and what a pause past the lease may not do."""

from __future__ import annotations

from collections.abc import Callable

from simulator import Faults
from tests.harness import LANE, Fleet, await_, notification, notifications, now_ms

MakeFleet = Callable[..., Fleet]
HOUR_MS = 3_600_000


def test_a_worker_paused_past_its_lease_sends_nothing_more_and_writes_nothing_more(
    fleet: MakeFleet,
) -> None:
    one = fleet(lease_s=2, policy={LANE: {"threads": 4, "queue": 12, "timeout_ms": 30_000}})
    one.slow(5_000)
    sleeper = one.worker().wait_ready()
    one.send(notifications(16))
    await_(lambda: one.accepted() == 4, what="the first four are at the provider")
    await_(lambda: one.books.states()["IN_FLIGHT"] == 16, what="all are claimed")
    sleeper.pause()
    one.slow(0)
    watcher = one.worker()
    one.await_states(UNKNOWN=16)
    assert one.accepted() == 4
    before = one.books.rows()
    sleeper.resume()
    sleeper.await_metric("settled", 16, outcome="fenced")
    assert one.books.rows() == before, "a stale token wrote something"
    assert one.accepted() == 4, "what stood in its queue was no longer its to send"
    assert sleeper.metric("lease_lapses") == 1
    watcher.await_metric("swept", 16)
    one.send(notifications(8))
    await_(lambda: one.books.states()["SENT"] == 8, what="it works on under a new lease")
    one.await_committed()
    assert one.verify().doubled == []


def test_a_worker_that_was_called_dead_registers_anew_and_works_on(fleet: MakeFleet) -> None:
    one = fleet(lease_s=2)
    worker = one.worker().wait_ready()
    one.books.query("UPDATE workers SET state = 'DEAD'")
    await_(lambda: worker.metric("lease_lapses") >= 1, what="it notices that it was called dead")
    one.send(notifications(5))
    one.await_states(SENT=5)
    one.verify()


def test_a_wrong_wall_clock_neither_expires_nor_revives_anything(fleet: MakeFleet) -> None:
    one = fleet()
    ahead, behind = one.worker(fault="wall_clock_ahead"), one.worker(fault="wall_clock_behind")
    workers = [ahead.wait_ready(), behind.wait_ready()]
    one.await_shared_out(workers)
    fresh = notifications(30, ttl_ms=60_000)
    stale = notifications(30, ttl_ms=60_000, created_at=now_ms() - 90_000)
    one.send([*fresh, *stale])
    one.await_states(SENT=30, EXPIRED=30)
    one.await_committed()
    assert [w.metric("lease_lapses") for w in workers] == [0, 0]
    await_(lambda: all(w.metric("settled") for w in workers), what="both took part")
    assert set(one.order()) == {n.id for n in fresh}
    one.verify()


def test_a_wall_clock_that_jumps_while_it_runs_changes_nothing(fleet: MakeFleet) -> None:
    one = fleet(lease_s=3)
    worker = one.worker(fault="wall_clock_jumps").wait_ready()
    one.slow(20)
    one.send(notifications(50, ttl_ms=60_000))
    worker.poke()
    one.send(notifications(50, ttl_ms=60_000))
    one.await_states(SENT=100)
    one.await_committed()
    assert worker.metric("lease_lapses") == 0
    one.verify()


def test_ttl_is_the_messages_own_capped_by_the_lane_and_judged_by_the_databases_clock(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"ttl_ms": 60_000, "max_ttl_ms": 3 * HOUR_MS}})
    one.books.shift_clock(HOUR_MS)
    one.worker().wait_ready()
    one.send(notifications(3, ttl_ms=2 * HOUR_MS))
    one.send(notifications(4))
    one.send(notifications(5, ttl_ms=9 * HOUR_MS, created_at=now_ms() - 3 * HOUR_MS))
    one.await_states(SENT=3, EXPIRED=9)
    assert one.books.reasons("EXPIRED") == {"ttl_at_intake": 9}
    one.await_committed()
    one.verify()


def test_what_waits_in_a_lanes_queue_past_its_ttl_expires_there(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"threads": 1, "queue": 10}})
    one.provider.control(rules=[Faults(receiver="first", latency_ms="3000")])
    one.worker().wait_ready()
    one.send([notification(receivers=["first"])])
    await_(lambda: one.accepted() == 1, what="the one thread is busy")
    one.send(notifications(5, ttl_ms=2_000))
    one.await_states(SENT=1, EXPIRED=5)
    assert one.books.reasons("EXPIRED") == {"ttl_in_queue": 5}
    assert {r.attempt for r in one.books.rows().values() if r.state == "EXPIRED"} == {0}
    one.await_committed()
    one.verify()
