"""Order per key: scenario 34."""

from __future__ import annotations

from collections.abc import Callable

from simulator import Faults
from tests.harness import LANE, Fleet, await_, notification, notifications

MakeFleet = Callable[..., Fleet]
ORDERED = {LANE: {"ordering": "key", "threads": 8}}


def test_deliveries_of_one_key_keep_their_order_and_others_are_not_held_up(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy=ORDERED)
    one.provider.control(rules=[Faults(receiver="slow", latency_ms="150"), Faults()])
    one.worker().wait_ready()
    hot = notifications(20, ordering_key="hot", receivers=lambda n: [f"slow-{n}"])
    cold = notifications(100, ordering_key=lambda n: f"cold-{n % 10}")
    keyless = notifications(50)
    one.send([*hot, *cold, *keyless])
    one.await_settled()
    order = one.order()
    places = {identity: place for place, identity in enumerate(order)}
    for line in (hot, *(cold[n::10] for n in range(10))):
        along = [places[item.id] for item in line]
        assert along == sorted(along)
    others = [places[item.id] for item in (*cold, *keyless)]
    assert max(others) < places[hot[-1].id], "the hot key held up the others"
    one.await_committed()
    assert one.verify().states == {"SENT": 170}


def test_null_keys_keep_no_order_and_hold_up_nobody(fleet: MakeFleet) -> None:
    one = fleet(policy=ORDERED, partitions=1)
    one.provider.control(rules=[Faults(receiver="slow", latency_ms="1500"), Faults()])
    one.worker().wait_ready()
    first, *rest = notifications(30, receivers=lambda n: [f"slow-{n}" if n == 0 else f"quick-{n}"])
    one.send([first, *rest])
    one.await_states(SENT=29, IN_FLIGHT=1)
    one.await_states(SENT=30)
    one.verify()


def test_what_comes_behind_an_open_one_of_its_key_waits_in_the_ledger(fleet: MakeFleet) -> None:
    one = fleet(
        policy={LANE: {"ordering": "key", "retry": {"base_ms": 3_600_000, "cap_ms": 3_600_000}}}
    )
    one.provider.control(rules=[Faults(receiver="later", errors={"429": 1.0})])
    one.worker().wait_ready()
    (first,) = one.send([notification(ordering_key="k", receivers=["later"])])
    one.await_states(RETRY=1)
    behind = one.send(notifications(3, ordering_key="k"))
    other = one.send(notifications(3, ordering_key="free"))
    one.await_states(RETRY=4, SENT=3)
    rows = one.books.rows()
    assert [rows[r.keys[0]].reason for r in behind] == ["behind"] * 3
    assert rows[first.keys[0]].reason == "http_429"
    assert {rows[r.keys[0]].state for r in other} == {"SENT"}
    one.await_committed()
    one.verify()


def test_order_per_key_survives_a_kill_and_a_change_of_hands(fleet: MakeFleet) -> None:
    one = fleet(policy=ORDERED, session_timeout_s=3, lease_s=2)
    one.slow(40)
    victim, *_ = one.start(2)
    items = notifications(120, ordering_key=lambda n: f"key-{n % 12}")
    one.send(items)
    await_(lambda: one.accepted() > 20, what="it is under way")
    victim.kill()
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert verdict.doubled == []
    places = {identity: place for place, identity in enumerate(one.order())}
    for number in range(12):
        along = [places[i.id] for i in items[number::12] if i.id in places]
        assert along == sorted(along)
    assert verdict.states["SENT"] + verdict.in_doubt + verdict.states["RETRY"] == 120
