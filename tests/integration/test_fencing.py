"""Leases, fences and clocks: scenarios 33 and 36, and what a pause past the lease may not do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from channels.simulator import Faults
from tests.harness import LANE, Fleet, await_, notification, notifications, now_ms

MakeFleet = Callable[..., Fleet]
HOUR_MS = 3_600_000


def test_a_worker_paused_past_its_lease_has_its_late_outcomes_fenced(fleet: MakeFleet) -> None:
    one = fleet(lease_s=2, policy={LANE: {"threads": 4, "queue": 0}})
    one.slow(700)
    sleeper = one.worker().wait_ready()
    one.send(notifications(4))
    await_(lambda: one.accepted() == 4, what="all are at the provider")
    sleeper.pause()
    watcher = one.worker()
    one.await_states(UNKNOWN=4)
    before = one.books.rows()
    sleeper.resume()
    await_(lambda: sleeper.metric("settled", outcome="fenced") == 4, what="the fence held")
    assert one.books.rows() == before, "a stale token wrote something"
    assert sleeper.metric("lease_lapses") == 1
    assert watcher.metric("swept") == 4
    one.await_committed()
    assert one.verify().doubled == []


def test_nothing_is_sent_under_a_lapsed_lease(fleet: MakeFleet) -> None:
    one = fleet(lease_s=2, policy={LANE: {"threads": 1, "queue": 20}})
    one.slow(500)
    sleeper = one.worker().wait_ready()
    one.send(notifications(20))
    one.await_in_flight(20)
    await_(lambda: one.accepted() >= 1, what="the first is at the provider")
    sleeper.pause()
    at_pause = one.accepted()
    one.worker()
    await_(lambda: one.books.states()["IN_FLIGHT"] == 0, what="the lease lapsed")
    sleeper.resume()
    await_(lambda: sleeper.metric("lease_valid") == 1, what="it has a new lease")
    one.await_settled()
    one.await_committed()
    assert one.accepted() <= at_pause + 1, "what it held in its queue was no longer its to send"
    assert one.verify().in_doubt >= 18
    one.send(notifications(2))
    await_(lambda: one.accepted() >= at_pause + 2, what="it works on under the new lease")


def test_a_worker_that_was_called_dead_registers_anew_and_works_on(fleet: MakeFleet) -> None:
    one = fleet(lease_s=2)
    worker = one.worker().wait_ready()
    one.books.query("UPDATE workers SET state = 'DEAD'")
    await_(lambda: worker.metric("lease_lapses") >= 1, what="it notices that it was called dead")
    one.send(notifications(5))
    one.await_states(SENT=5)
    one.verify()


@pytest.mark.parametrize("fault", ["wall_clock_ahead", "wall_clock_behind"])
def test_a_wrong_wall_clock_neither_expires_nor_revives_anything(
    fleet: MakeFleet, fault: str
) -> None:
    one = fleet()
    worker = one.worker(fault=fault).wait_ready()
    fresh = notifications(5, ttl_ms=60_000)
    stale = notifications(5, ttl_ms=60_000, created_at=now_ms() - 90_000)
    one.send([*fresh, *stale])
    one.await_states(SENT=5, EXPIRED=5)
    one.await_committed()
    assert worker.metric("lease_lapses") == 0
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


def test_ttl_is_judged_by_the_databases_clock(fleet: MakeFleet) -> None:
    one = fleet()
    one.books.shift_clock(HOUR_MS)
    one.worker().wait_ready()
    one.send(notifications(3, ttl_ms=60_000))
    one.send(notifications(3, ttl_ms=2 * HOUR_MS))
    one.await_states(SENT=3, EXPIRED=3)
    one.verify()


def test_what_is_past_its_ttl_at_intake_expires_with_a_reason_and_is_not_sent(
    fleet: MakeFleet,
) -> None:
    one = fleet()
    one.send(notifications(3, ttl_ms=1_000, created_at=now_ms() - 5_000))
    one.send(notifications(3))
    one.worker().wait_ready()
    one.await_states(SENT=3, EXPIRED=3)
    assert one.books.reasons("EXPIRED") == {"ttl_at_intake": 3}
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


def test_a_lanes_max_ttl_caps_what_a_message_asks_for(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"ttl_ms": 60_000, "max_ttl_ms": 60_000}})
    one.worker().wait_ready()
    one.send(notifications(2, ttl_ms=HOUR_MS, created_at=now_ms() - 90_000))
    one.await_states(EXPIRED=2)
    one.verify()
