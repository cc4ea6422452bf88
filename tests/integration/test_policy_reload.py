"""A policy applied under traffic: in every worker within seconds, and no message lost, doubled or sent
under no version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from backends.sql.database import Database, database_url
from deploy.local.stack import Stack
from policy.loading import load
from policy.versions import Version, Versions
from tests.harness import LANE, Fleet, await_, notifications
from tests.harness.fleet import toml
from tests.harness.worker import WorkerProcess

MakeFleet = Callable[..., Fleet]
WITHIN_S = 5.0
OTHER = "webhook.marketing"


def apply(fleet: Fleet, lanes: Mapping[str, Mapping[str, Any]]) -> Version:
    """What `hongyan policy apply` writes."""
    database = Database(database_url(fleet.ground.database_url, "."), pool_size=1)
    try:
        versions = Versions(database)
        newest = versions.newest()
        base, before = (newest.number, newest.text) if newest is not None else (0, "")
        return versions.add(toml({"lanes": lanes}), "test", base=base, before=before)
    finally:
        database.close()


def await_followed(workers: list[WorkerProcess], version: Version) -> None:
    """Until every worker says that it follows the version, within the promised time."""
    begun = time.monotonic()

    def followed() -> bool:
        return all(w.metric("policy_number") == version.number for w in workers)

    await_(followed, what=f"{version.name} is followed by {[w.id for w in workers]}")
    assert time.monotonic() - begun <= WITHIN_S


def versions_of(fleet: Fleet) -> dict[str, int]:
    """Deliveries by the version their rows name."""
    rows = fleet.books.query(
        "SELECT policy_version AS name, count(*) AS n FROM hongyan_deliveries GROUP BY 1"
    )
    return {row.name: row.n for row in rows}


def _told(worker: WorkerProcess, rule: str) -> bool:
    """Whether the worker's log has an alert of the rule."""
    return any(event["rule"] == rule for event in worker.events("alert"))


@contextmanager
def traffic(fleet: Fleet) -> Iterator[None]:
    """Notifications in small lots, as fast as Kafka takes them, while the block runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            fleet.send(notifications(20))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_change_reaches_three_workers_under_traffic_and_nothing_is_lost_or_doubled(
    fleet: MakeFleet,
) -> None:
    first = {LANE: {"threads": 2, "queue": 2}}
    one = fleet(partitions=6, policy=first)
    one.slow(5)
    workers = one.start(3)
    of_file = load(one.folder / "policy.toml").version
    applied = [of_file]
    steps: list[Mapping[str, Any]] = [
        {"threads": 12, "queue": 20, "timeout_ms": 4_000},
        {"threads": 1, "queue": 0, "retry": {"attempts": 3}, "breaker": {"min_calls": 5}},
        {"threads": 6, "accounts": {"demo": 5}, "ttl_ms": 600_000, "max_in_flight": 50},
    ]
    with traffic(one):
        for step in steps:
            version = apply(one, {LANE: step})
            await_followed(workers, version)
            applied.append(version.name)
            count = len(one.sent)
            await_(
                lambda count=count: len(one.sent) > count + 100,  # type: ignore[misc]
                what="traffic goes on under it",
            )
            await_(
                lambda name=version.name: versions_of(one).get(name, 0) > 20,  # type: ignore[misc]
                what=f"deliveries name {version.name}",
            )
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.lost, verdict.doubled, verdict.waiting) == ([], [], [])
    assert verdict.states == {"SENT": len(one.keys)}
    named = versions_of(one)
    assert set(named) <= set(applied), "every delivery acted under a version that was in force"
    assert sum(named.values()) == len(one.keys)


def test_a_worker_that_starts_follows_what_is_applied_and_says_that_the_file_differs(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"threads": 2}})
    one.start(1)
    version = apply(one, {LANE: {"threads": 3}})
    late = one.worker().wait_ready()
    assert late.metric("policy_number") == version.number
    (said,) = late.events("policy_file_differs")
    assert said["follows"] == version.name


def test_a_version_that_a_worker_cannot_follow_changes_nothing_and_the_next_one_heals(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"threads": 2}})
    (worker,) = one.start(1)
    apply(one, {LANE: {"accounts": ["nobody"]}})
    worker.await_metric("policy_refused", 1)
    (said,) = worker.events("policy_refused")
    assert "account 'nobody' is not in hongyan.toml" in said["cause"]
    one.send(notifications(5))
    one.await_states(SENT=5)
    assert set(versions_of(one)) == {load(one.folder / "policy.toml").version}
    await_(lambda: _told(worker, "policy_refused"), what="a person is told")
    (alert,) = one.books.query(
        "SELECT state, subject, kept FROM alerts WHERE rule = 'policy_refused'"
    )
    assert (alert.state, alert.subject) == ("firing", "")
    version = apply(one, {LANE: {"threads": 4}})
    await_followed([worker], version)
    worker.await_metric("policy_refused", 0)


def test_a_lane_keeps_its_order_while_its_other_lanes_follow(fleet: MakeFleet) -> None:
    one = fleet(lanes=(LANE, OTHER), policy={LANE: {"threads": 2}})
    (worker,) = one.start(1)
    version = apply(one, {LANE: {"ordering": "key"}, OTHER: {"threads": 5}})
    await_followed([worker], version)
    worker.await_metric("policy_lanes_kept", 1)
    (said,) = worker.events("policy_lane_kept")
    assert said["lane"] == LANE
    one.send(notifications(3))
    one.send(notifications(3, lane=OTHER))
    one.await_states(SENT=6)
    rows = one.books.query("SELECT DISTINCT lane, policy_version AS name FROM hongyan_deliveries")
    named = {row.lane: row.name for row in rows}
    assert named == {OTHER: version.name, LANE: load(one.folder / "policy.toml").version}


def test_what_waits_for_a_dead_account_goes_through_the_one_that_is_named_now(
    fleet: MakeFleet,
) -> None:
    accounts = {
        "dead": {"provider": "webhook", "endpoint": "http://127.0.0.1:9/send"},
        "demo": {"provider": "webhook", "endpoint": ""},
    }
    one = fleet(policy={LANE: {"threads": 2}})
    accounts["demo"]["endpoint"] = f"{one.provider.url}/send"
    one._accounts = accounts
    breaker = {"min_calls": 1, "open_ms": 600_000, "max_open_ms": 600_000}
    one.configure({LANE: {"accounts": ["dead"], "breaker": breaker}})
    (worker,) = one.start(1)
    one.send(notifications(40))
    await_(
        lambda: worker.metric("breaker_state", account="dead") == 2,
        what="the dead account's breaker is open",
    )
    worker.await_metric("in_flight", 0)
    waiting = one.books.states()["RETRY"]
    version = apply(one, {LANE: {"accounts": ["demo"]}})
    await_followed([worker], version)
    one.await_states(SENT=40 - waiting, RETRY=waiting)
    assert versions_of(one)[version.name] == 40 - waiting


@pytest.mark.soak(
    small="::test_a_version_that_a_worker_cannot_follow_changes_nothing_and_the_next_one_heals"
)
def test_a_database_that_goes_and_comes_does_not_end_the_watch(
    broken_fleet: MakeFleet, breakable: Stack
) -> None:
    one = broken_fleet(policy={LANE: {"threads": 2}}, lease_s=60)
    (worker,) = one.start(1)
    breakable.kill("postgres")
    await_(lambda: worker.events("policy_not_watched"), what="it says that it cannot look")
    breakable.up()
    await_(lambda: worker.events("policy_watched_again"), what="it looks again")
    version = apply(one, {LANE: {"threads": 3}})
    await_followed([worker], version)
