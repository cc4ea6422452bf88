"""Orders of a person: pauses of lanes and drains of processes, on each of the ledger's databases."""

from __future__ import annotations

import threading

import pytest

from idempotency.fleet.controls import REPLACED, ControlOrders
from idempotency.fleet.snapshots import (
    MOST_CHARACTERS,
    MOST_NAMES,
    LaneSnapshot,
    ProcessSnapshot,
    decoded,
    encoded,
)
from message.vocabulary import lanes_matching
from tests.idempotency.making import LEASE_MS, World, worker

SMS, MAIL = "sms.notice", "email.notice"
NONE = ControlOrders({}, None)


def test_a_pause_holds_until_it_is_ended_and_its_history_stays(world: World) -> None:
    controls = world.open().controls()
    assert controls.orders("w1", 0) == NONE
    assert controls.pause([SMS, MAIL], None, author="li", reason="campaign") == []
    assert controls.orders("w1", 0) == ControlOrders({SMS: None, MAIL: None})
    begun = world.now
    world.advance(5_000)
    (ended,) = controls.resume([SMS, "push.notice"], author="lin", reason="mended")
    assert (ended.lane, ended.author, ended.paused_at) == (SMS, "li", begun)
    assert (ended.ended_at, ended.ended_by, ended.ended_reason) == (world.now, "lin", "mended")
    assert controls.orders("w1", 0) == ControlOrders({MAIL: None})
    assert [one.lane for one in controls.pauses()] == [MAIL]
    assert {one.lane: one.over_at(world.now) for one in controls.history()} == {
        SMS: world.now,
        MAIL: None,
    }
    assert len(controls.history(1)) == 1


def test_a_pause_ends_by_itself_by_the_databases_clock(world: World) -> None:
    controls = world.open().controls()
    controls.pause([SMS], 30_000, author="li", reason="repairs")
    until = world.now + 30_000
    world.advance(29_999)
    assert controls.orders("w1", 0) == ControlOrders({SMS: 1})
    world.advance(1)
    assert controls.orders("w1", 0) == NONE
    assert controls.pauses() == []
    (one,) = controls.history()
    assert (one.ended_at, one.over_at(world.now)) == (None, until)
    assert controls.resume([SMS], author="li", reason="") == [], "it is over already"
    (one,) = controls.history()
    assert (one.ended_at, one.ended_by) == (until, None)


def test_a_pause_over_another_replaces_it_and_both_are_kept(world: World) -> None:
    controls = world.open().controls()
    controls.pause([SMS], None, author="li", reason="first")
    (replaced,) = controls.pause([SMS], 1_000, author="lin", reason="second")
    assert (replaced.author, replaced.ended_by, replaced.ended_reason) == ("li", "lin", REPLACED)
    (one,) = controls.pauses()
    assert (one.author, one.reason, one.until) == ("lin", "second", world.now + 1_000)
    assert [pause.reason for pause in controls.history()] == ["second", "first"]


def test_many_that_pause_at_once_leave_one_pause_of_each_lane(world: World) -> None:
    ledgers = [world.open() for _ in range(4)]
    lanes = [lane.name for lane in lanes_matching(["*"])]
    errors: list[BaseException] = []

    def pause(number: int) -> None:
        try:
            some = lanes if number % 2 else lanes[::-1]
            ledgers[number].controls().pause(some, None, author=f"a{number}", reason="at once")
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=pause, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(one.lane for one in ledgers[0].controls().pauses()) == sorted(lanes)


def test_a_drain_is_for_the_life_that_it_was_ordered_for(world: World) -> None:
    ledger = world.open()
    controls = ledger.controls()
    assert not controls.drain("w1", author="li", reason="repairs")
    first = ledger.register(worker("w1"))
    ledger.register(worker("w2"))
    assert controls.drain("w1", author="li", reason="repairs")
    assert controls.drain("w1", author="lin", reason="the same moment")
    assert controls.orders("w1", first.now_ms).drain == "li: repairs"
    assert controls.orders("w2", first.now_ms) == NONE
    world.advance(10)
    ledger.retire(first)
    assert not controls.drain("w1", author="li", reason="it has ended")
    second = ledger.register(worker("w1"))
    assert controls.orders("w1", second.now_ms) == NONE
    world.advance(LEASE_MS + 1)
    assert not controls.drain("w1", author="li", reason="its lease lapsed")


def test_orders_read_no_table_but_the_small_ones(postgres: World) -> None:
    ledger = postgres.open()
    controls = ledger.controls()
    for number in range(200):
        controls.pause([SMS], None, author="li", reason=str(number))
        controls.resume([SMS], author="li", reason="")
    controls.pause([SMS, MAIL], None, author="li", reason="now")
    with ledger.database.connection() as connection:
        lines = connection.execute(
            "EXPLAIN (ANALYZE) SELECT lane FROM lane_pauses WHERE ended_at IS NULL"
            " AND (until IS NULL OR until > hongyan_now())"
        ).fetchall()
    said = "\n".join(line for (line,) in lines)
    assert "lane_pauses_open" in said
    assert "Rows Removed" not in said


# -- snapshots --


def test_a_heartbeat_carries_the_snapshot_and_a_new_life_begins_without(world: World) -> None:
    ledger = world.open()
    lease = ledger.register(worker("w1"))
    snapshot = ProcessSnapshot(3, {SMS: LaneSnapshot(in_flight=2, lag=7, open=["a"], paused=True)})
    renewed = ledger.heartbeat(lease, "RUNNING", encoded(snapshot))
    (process,) = ledger.fleet_status().processes()
    assert process.snapshot == snapshot
    assert renewed is not None
    ledger.retire(renewed)
    ledger.register(worker("w1"))
    (process,) = ledger.fleet_status().processes()
    assert process.snapshot is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lanes":3}'])
def test_a_text_that_cannot_be_read_is_no_snapshot(text: str) -> None:
    assert decoded(text) is None


def test_a_snapshot_is_bounded_and_leaves_idle_lanes_out_first() -> None:
    names = [f"an-account-with-a-long-name-{number}" for number in range(100)]
    busy = {f"sms.busy-{n}": LaneSnapshot(in_flight=1, open=names) for n in range(12)}
    idle = {f"sms.idle-{n}": LaneSnapshot(partitions=3, lag=0) for n in range(100)}
    text = encoded(ProcessSnapshot(1, {**idle, **busy}))
    assert len(text) <= MOST_CHARACTERS
    found = decoded(text)
    assert found is not None
    assert found.left_out + len(found.lanes) == 112
    assert all(len(one.open) <= MOST_NAMES for one in found.lanes.values())
    assert all(name.startswith("sms.busy") for name in found.lanes)
