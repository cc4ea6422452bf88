"""Real workers: what is recalled in Kafka is never sent; a flood of poison pauses its own lane alone."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from backends.settings import load
from idempotency.recalls import Kind
from idempotency.sql_ledger import open_ledger
from tests.harness import Fleet, await_, notification, notifications

MakeFleet = Callable[..., Fleet]
LIFE_MS = 600_000


def announce(one: Fleet, kind: Kind, name: str) -> None:
    ledger = open_ledger(load(one.config, {}))
    ledger.recalls().announce(kind, name, LIFE_MS)
    ledger.close()


def test_what_is_recalled_while_it_is_queued_is_dropped_and_the_rest_goes_out(
    fleet: MakeFleet,
) -> None:
    one = fleet()
    gone = [msgspec.structs.replace(n, biz_id="order-1") for n in notifications(20)]
    kept, by_id = notifications(30), notification()
    one.send([*gone, by_id, *kept])
    announce(one, Kind.BIZ, "order-1")
    announce(one, Kind.MESSAGE, by_id.id)
    worker = one.worker().wait_ready()
    one.await_committed()
    await_(lambda: one.verify().states == {"SENT": 30, "DROPPED": 21}, what="all have ended")
    sent = set(one.order())
    assert sent == {n.id for n in kept}
    worker.await_metric("settled", 21, outcome="DROPPED")
    later = msgspec.structs.replace(notification(), biz_id="order-1")
    one.send([later])
    await_(lambda: later.id in one.order(), what="what is made after the recall goes out")


def test_a_flood_of_poison_pauses_its_lane_and_nothing_of_it_is_lost(fleet: MakeFleet) -> None:
    one = fleet(
        lanes=["webhook.notice", "webhook.marketing"],
        settings={"dead_letters": {"burst": 5, "rate_per_s": 10.0}},
    )
    worker = one.worker().wait_ready()
    one.send([b"poison"] * 40)
    await_(lambda: worker.events("dead_letter_permits_spent"), what="it says that it pauses")
    await_(lambda: worker.metric("dead_letters_held", reason="not_json") > 0, what="it shows")
    others = notifications(10, "webhook.marketing")
    one.send(others)
    await_(lambda: {n.id for n in others} <= set(one.order()), what="the other lane goes on")
    one.await_committed()
    assert len({letter.origin for letter in one.dead_letters()}) == 40
    worker.await_metric("dead_letters_held", 0, reason="not_json")
