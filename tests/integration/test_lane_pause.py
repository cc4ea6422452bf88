"""A lane paused under traffic: nothing of it is sent, other lanes go on, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from backends.settings import DatabaseSettings, KafkaSettings, Settings
from deploy.local.layout import REPOSITORY
from hongyan.output.lanes import lane_rows
from idempotency.fleet.served_lanes import ServedLane
from idempotency.sql_ledger import open_ledger
from message.states import State
from simulator import Faults
from tests.harness import LANE, Fleet, await_, notifications, now_ms

MakeFleet = Callable[..., Fleet]
OTHER = "webhook.marketing"
WITHIN_MS = 5_000
SETTLES_MS = 500
"""A call that began before the last process obeyed arrives within this."""


def hongyan(fleet: Fleet, *arguments: str) -> Any:
    """Returns the JSON that the command prints; the command must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", "from hongyan.program import main; main()", *arguments, "--json"],
        cwd=REPOSITORY,
        env={**os.environ, "HONGYAN_CONFIG": str(fleet.config)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


class Person:
    """Orders over connections of its own, and what the fleet shows of them."""

    def __init__(self, fleet: Fleet) -> None:
        self._ledger = open_ledger(
            Settings(database=DatabaseSettings(url=fleet.ground.database_url))
        )
        self.controls = self._ledger.controls()
        self.close = self._ledger.close
        self._settings = Settings(
            kafka=KafkaSettings(
                bootstrap=fleet.ground.bootstrap,
                topic_prefix=fleet.ground.topic_prefix,
                group_id=fleet.wire.group,
            )
        )

    def row(self, *, lag: bool = False) -> ServedLane:
        """The lane as `hongyan lanes` shows it."""
        processes, pauses = self._ledger.fleet_status().processes(), self.controls.pauses()
        (found,) = lane_rows([LANE], processes, pauses, self._settings if lag else None)
        return found


@contextmanager
def traffic(fleet: Fleet) -> Iterator[None]:
    """Notifications of both lanes in small lots, while the block runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.02):
            fleet.send([*notifications(10), *notifications(5, OTHER)])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def arrivals(fleet: Fleet, lane: str) -> list[int]:
    """Times of all calls for the lane's deliveries, by the provider's book."""
    keys = keys_of(fleet, lane)
    return [record.at_ms for record in fleet.provider.records() if record.key in keys]


def keys_of(fleet: Fleet, lane: str) -> set[str]:
    topic = fleet.wire.topic(lane)
    return {key for sent in list(fleet.sent) if sent.place.topic == topic for key in sent.keys}


def test_a_lane_paused_on_three_workers_under_load_sends_nothing_and_comes_back(
    fleet: MakeFleet,
) -> None:
    lane = {"threads": 4, "retry": {"base_ms": 1_000, "cap_ms": 2_000, "attempts": 50}}
    one = fleet(
        lanes=(LANE, OTHER),
        partitions=3,
        policy={LANE: lane, OTHER: lane},
        settings={
            "recovery": {"lanes": [LANE, OTHER], "poll_s": 0.3, "health_address": "127.0.0.1:0"}
        },
    )
    one.provider.control(rules=[Faults(latency_ms="20", errors={"425": 0.1})])
    recovery = one.recovery()
    workers = one.start(3)
    recovery.wait_ready()

    def to_send_again() -> int:
        return one.books.states(keys_of(one, LANE))["RETRY"]

    person = Person(one)
    with closing(person), traffic(one):
        await_(lambda: len(arrivals(one, LANE)) > 200, what="the lane is under load")
        person.controls.pause([LANE], None, author="li", reason="test")
        await_(lambda: not person.row().not_obeying, what="all four obey")
        (pause,) = person.controls.pauses()
        assert person.row().workers == 3
        quiet_from = min(now_ms() + SETTLES_MS, pause.paused_at + WITHIN_MS)
        others = len(arrivals(one, OTHER))
        waiting = [to_send_again()]
        await_(
            lambda: now_ms() > quiet_from + 2_000 and len(arrivals(one, OTHER)) > others + 50,
            what="the other lane goes on",
        )
        waiting.append(to_send_again())
        await_(lambda: (person.row(lag=True).lag or 0) > 0, what="its records wait in Kafka")
        (ended,) = person.controls.resume([LANE], author="lin", reason="mended")
        resumed_at = ended.ended_at or 0
        await_(lambda: max(arrivals(one, LANE)) > resumed_at, what="the lane is back")
        back_at = min(at for at in arrivals(one, LANE) if at > resumed_at)
        assert back_at - resumed_at <= WITHIN_MS
    assert [at for at in arrivals(one, LANE) if quiet_from <= at <= resumed_at] == []
    assert min(waiting) > 0, "recovery had deliveries to send again, and left them"
    one.provider.control(rules=[])
    await_(
        lambda: one.books.states(one.keys) == {State.SENT: len(set(one.keys))},
        what="everything is sent",
    )
    one.await_committed()
    verdict = one.verify()
    assert (verdict.lost, verdict.doubled, verdict.waiting) == ([], [], [])
    assert all(worker.events("lane_paused") for worker in [*workers, recovery])


def test_a_worker_that_starts_in_a_pause_claims_nothing_and_drains_when_it_is_asked(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"threads": 2}})
    hongyan(one, "lanes", "pause", LANE, "--reason", "test")
    (worker,) = one.start(1)
    worker.await_metric("lane_paused", 1, lane=LANE)
    one.send(notifications(5))
    (row,) = [r for r in hongyan(one, "lanes", "list") if r["lane"] == LANE]
    assert (row["lag"], row["partitions"]) == (5, 4)
    hongyan(one, "workers", "drain", worker.id, "--reason", "its host is replaced")
    assert worker.wait(10) == 0
    (ordered,) = worker.events("drain_ordered")
    assert "its host is replaced" in ordered["by"]
    assert one.books.states(one.keys) == {}, "nothing was claimed"
    assert [r for r in one.provider.records() if r.key in one.keys] == []
    hongyan(one, "lanes", "resume", LANE)
    second = one.worker(worker.id).wait_ready()
    one.await_states(SENT=5)
    assert second.running, "the order to drain was for the life before"
    assert one.verify().problems == []
