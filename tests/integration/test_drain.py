"""Ending well and ending badly: scenarios 13 and 25 to 29."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from simulator import Faults
from tests.harness import LANE, Fleet, await_, notifications

MakeFleet = Callable[..., Fleet]
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
MARGIN_S = 1.0
BUSY_S = 1.5
"""What a machine with other work to do may add."""


def test_sigterm_idle_ends_at_once_with_code_0_and_an_empty_group(fleet: MakeFleet) -> None:
    one = fleet()
    (worker,) = one.start(1)
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < MARGIN_S + BUSY_S
    assert one.wire.members() == {}
    assert one.books.workers()[worker.id].state == "RETIRED"


def test_sigterm_with_full_lanes_ends_within_the_slowest_call_and_a_second(
    fleet: MakeFleet,
) -> None:
    call_s = 2.0
    one = fleet(policy={LANE: {"threads": 8, "queue": 24}})
    one.slow(int(call_s * 1000))
    (worker,) = one.start(1)
    one.send(notifications(200))
    one.await_in_flight(32)
    worker.await_metric("at_provider", 8, lane=LANE)
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < call_s + MARGIN_S + BUSY_S
    verdict = one.verify(all_read=False)
    assert verdict.in_doubt == 0, "what had begun has ended, what had not was given back"
    assert verdict.states["IN_FLIGHT"] == 0
    assert 8 <= verdict.states["SENT"] < 200


def test_a_successor_takes_over_at_once_what_was_given_back(fleet: MakeFleet) -> None:
    one = fleet(
        policy={LANE: {"threads": 4, "queue": 16, "retry": {"base_ms": 600_000, "cap_ms": 600_000}}}
    )
    one.slow(1_000)
    (worker,) = one.start(1)
    one.send(notifications(40))
    one.await_in_flight(20)
    worker.stop()
    given_back = [k for k, r in one.books.rows().items() if r.reason == "given_back"]
    assert given_back, "some waited in the queue"
    one.slow(0)
    one.worker().wait_ready()
    one.await_settled(timeout=20)
    one.await_committed()
    assert one.verify().states == {"SENT": 40}
    assert {one.books.rows()[key].attempt for key in given_back} == {1}, "giving back costs none"


def test_sigterm_in_the_middle_of_a_rebalance_loses_and_doubles_nothing(fleet: MakeFleet) -> None:
    one = fleet()
    one.slow(300)
    (old,) = one.start(1)
    one.send(notifications(60))
    one.await_in_flight(16)
    new = one.worker()
    await_(lambda: new.id in one.wire.members(), what="the group rebalances")
    assert old.stop() == 0
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.states, verdict.doubled) == ({"SENT": 60}, [])


def test_a_second_sigterm_changes_nothing(fleet: MakeFleet) -> None:
    one = fleet()
    one.slow(1_500)
    (worker,) = one.start(1)
    one.send(notifications(8))
    one.await_in_flight(8)
    worker.terminate()
    await_(lambda: worker.events("draining"), what="it drains")
    worker.terminate()
    assert worker.wait() == 0
    assert one.verify().states == {"SENT": 8}
    assert len(worker.events("draining")) == 1


def test_sigterm_before_it_is_ready_ends_it_too(fleet: MakeFleet) -> None:
    one = fleet()
    worker = one.worker()
    await_(lambda: worker.log_text(), what="it has begun")
    assert worker.stop() == 0
    assert one.books.states() == {}


def test_a_hung_call_cannot_hold_a_drain_past_its_deadline_nor_lose_its_offset(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1, drain_s=3, policy={LANE: {"timeout_ms": 120_000}})
    one.provider.control(rules=[Faults(receiver="stuck", hang=1.0)])
    (worker,) = one.start(1)
    one.send([*notifications(5), *notifications(1, receivers=["stuck"]), *notifications(5)])
    one.await_states(SENT=10, IN_FLIGHT=1)
    began = time.monotonic()
    assert worker.stop() == 0, "it left work to the ledger, which is no failure"
    assert time.monotonic() - began < 3 + MARGIN_S + BUSY_S
    assert worker.events("stopped")[0]["left_to_ledger"] == 1, "and it says how much"
    one.await_states(SENT=10, UNKNOWN=1)
    assert one.committed()[one.sent[0].place].offset == 5
    one.worker().wait_ready()
    one.await_committed()
    assert one.verify().doubled == []


def test_drain_ends_while_deliveries_wait_for_a_retry(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"retry": {"base_ms": 3_600_000, "cap_ms": 3_600_000}}})
    # The first refusal shuts the account: all are under way before it comes.
    one.slow(2_000, errors={"429": 1.0}, retry_after="3600")
    one.send(notifications(8))
    (worker,) = one.start(1)
    one.await_states(RETRY=8)
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < MARGIN_S + BUSY_S
    one.await_committed()
    one.verify()


def test_a_drain_keeps_its_place_in_the_group(fleet: MakeFleet) -> None:
    limits = {"max.poll.interval.ms": 3_000, "heartbeat.interval.ms": 500}
    settings = {"kafka": {"client": limits}}
    one = fleet(
        session_timeout_s=3,
        settings=settings,
        policy={LANE: {"timeout_ms": 9_000}},
    )
    one.slow(5_000)
    old, new = one.start(2)
    held = one.wire.members()[old.id]
    one.send(n for n in notifications(16))
    await_(lambda: one.books.in_flight_of(old.id), what="it has work")
    old.terminate()
    await_(lambda: old.events("draining"), what="it drains")
    while old.running:
        members = one.wire.members()
        assert members.get(old.id, held) == held, "it lost partitions while it drained"
        assert not old.events("partitions_lost")
    assert old.wait() == 0
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.states, verdict.doubled) == ({"SENT": 16}, [])
    assert new.running


@PROTOCOLS
def test_kill_9_loses_nothing_and_leaves_in_doubt_no_more_than_threads_and_queue(
    fleet: MakeFleet, protocol: str
) -> None:
    threads = 6
    one = fleet(protocol=protocol, session_timeout_s=3, policy={LANE: {"threads": threads}})
    one.slow(200)
    victim, _ = one.start(2)
    one.send(notifications(80))
    await_(lambda: one.books.in_flight_of(victim.id) >= threads, what="its lane is full")
    victim.kill()
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert verdict.doubled == []
    assert 0 < verdict.in_doubt <= 2 * threads
    assert verdict.states["SENT"] == 80 - verdict.in_doubt


def test_a_worker_back_under_its_name_puts_its_own_past_in_doubt_at_once(fleet: MakeFleet) -> None:
    one = fleet(lease_s=60, policy={LANE: {"timeout_ms": 60_000}})
    one.provider.control(rules=[Faults(hang=1.0)])
    worker = one.worker("stable").wait_ready()
    one.send(notifications(4))
    one.await_in_flight(4)
    await_(lambda: one.accepted() == 4, what="all are at the provider")
    worker.kill()
    one.provider.control(rules=[])
    one.worker("stable")
    one.await_states(UNKNOWN=4, timeout=20)
    one.verify(all_read=False)


def test_a_name_that_another_live_worker_has_is_refused_in_one_sentence(fleet: MakeFleet) -> None:
    one = fleet(lease_s=60)
    first = one.worker("taken").wait_ready()
    second = one.worker("taken")
    assert second.wait() == 1
    assert "a worker named 'taken' runs on" in second.log_text()
    assert "Traceback" not in second.log_text()
    assert first.running
