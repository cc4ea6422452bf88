"""Outcome events of a real fleet: a worker ends deliveries, recovery publishes, the topic is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from message.outcome_event import receiver_hash
from tests.harness import LANE, Fleet, await_, notification

MakeFleet = Callable[..., Fleet]
HASH_KEY = "of receivers, in this test and nowhere else"
RECOVERY = {"lanes": [LANE], "poll_s": 0.2, "health_address": "127.0.0.1:0", "lease_s": 5}


def announcing(make: MakeFleet) -> Fleet:
    """A fleet whose lane is announced."""
    fleet = make(
        partitions=2,
        policy={LANE: {"outcomes": "topic"}},
        settings={"recovery": RECOVERY, "outcomes": {"hash_key_file": "hash_key"}},
    )
    (fleet.folder / "hash_key").write_text(HASH_KEY + "\n")
    return fleet


def events(fleet: Fleet) -> list[dict[str, Any]]:
    return [json.loads(value) for value in fleet.wire.outcomes()]


def test_each_delivery_is_announced_once_after_a_worker_that_was_killed(fleet: MakeFleet) -> None:
    one = announcing(fleet)
    (worker,) = one.start(1)
    one.send(
        [notification(id=f"n-{n}", biz_id=f"order-{n}", receivers=["user-1"]) for n in range(40)]
    )
    await_(lambda: len(one.books.rows()) == 40, what="all is claimed")
    worker.kill()  # nobody publishes for it: its batches are in the ledger
    one.recovery().wait_ready()
    one.worker().wait_ready()

    def announced() -> bool:
        return {event["id"] for event in events(one)} == {f"n-{n}" for n in range(40)}

    await_(announced, what="every end is in the topic")
    found = {event["event_id"]: event for event in events(one)}
    assert len(found) == 40
    by_id = {event["id"]: event for event in found.values()}
    event = by_id["n-7"]
    assert (event["biz_id"], event["state"], event["lane"]) == ("order-7", "SENT", LANE)
    assert event["receiver_hash"] == receiver_hash(HASH_KEY.encode(), "webhook", "user-1")
    assert "user-1" not in json.dumps(event)
    await_(lambda: not one.books.query("SELECT 1 FROM outcome_batches"), what="nothing waits")
