"""Servers that die, freeze, forget or cut a reply: scenarios 30 to 32. Most on a private stack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from deploy.local.stack import Stack
from tests.harness import LANE, Fleet, WorkerProcess, await_, ground_on, notifications
from tests.harness.proxy import Proxy
from tests.harness.wire import Place

MakeFleet = Callable[..., Fleet]
Private = Callable[..., AbstractContextManager[Stack]]
pytestmark = pytest.mark.timeout(240)


# ---- PostgreSQL -----------------------------------------------------------------------------------


def test_a_database_killed_between_claim_and_settle_costs_no_attempt_and_no_double(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet(lease_s=60, policy={LANE: {"threads": 8, "timeout_ms": 20_000}})
    one.slow(1_500)
    worker = one.worker().wait_ready()
    one.send(notifications(60))
    await_(lambda: one.accepted() >= 8, what="a batch is at the provider")
    breakable.kill("postgres")
    await_(lambda: worker.events("ledger_away"), what="it notices")
    before = one.committed()
    await_(lambda: worker.readyz()[0] == 503, what="it says that it is not ready")
    assert worker.readyz()[1]["reason"].startswith("the ledger's database is away: ")
    assert worker.healthz()[0] == 200, "a restart would not bring the database back"
    assert one.committed() == before, "an offset moved without a ledger"
    breakable.start("postgres")
    one.slow(0)
    one.await_states(SENT=60)
    one.await_committed()
    verdict = one.verify()
    assert verdict.doubled == []
    assert {row.attempt for row in one.books.rows().values()} == {1}
    assert worker.readyz()[0] == 200


@pytest.mark.soak(
    small="::test_a_database_killed_between_claim_and_settle_costs_no_attempt_and_no_double"
)
def test_a_database_away_for_longer_than_the_lease_dooms_no_more_than_was_claimed(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet(lease_s=2, policy={LANE: {"threads": 4, "queue": 8}})
    one.slow(300)
    worker = one.worker().wait_ready()
    one.send(notifications(60))
    await_(lambda: one.accepted() >= 4, what="it is under way")
    breakable.kill("postgres")
    worker.await_metric("lease_valid", 0)
    at_most = one.accepted() + 4
    worker.await_metric("at_provider", 0)
    assert one.accepted() <= at_most
    breakable.start("postgres")
    one.slow(0)
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert verdict.doubled == []
    assert verdict.in_doubt <= 12


def test_a_reply_cut_after_the_commit_changes_nothing(fleet: MakeFleet) -> None:
    one = fleet(lease_s=60)
    one.slow(5)
    host, port = one.ground.database_url.rpartition("@")[2].partition("/")[0].split(":")
    with Proxy(host, int(port)) as proxy:
        through = one.ground.database_url.replace(f":{port}/", f":{proxy.port}/")
        worker = one.worker(DATABASE__URL=through).wait_ready()
        for _ in range(12):
            proxy.cut_replies(1)
            one.send(notifications(10))
            await_(lambda: not proxy.pending, what="a reply was cut")
        one.await_states(SENT=120)
        one.await_committed()
        assert proxy.cuts == 12
        assert worker.events("ledger_away")
    verdict = one.verify()
    assert verdict.doubled == []
    assert {row.attempt for row in one.books.rows().values()} == {1}


def test_a_database_away_at_the_start_is_waited_for(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet()
    breakable.kill("postgres")
    patient, hasty = one.worker(), one.worker()
    await_(lambda: patient.events("ledger_away"), what="it says what it waits for")
    await_(lambda: hasty.events("ledger_away"), what="so does the other")
    assert hasty.stop() == 0, "SIGTERM ends the waiting"
    breakable.start("postgres")
    patient.wait_ready()
    one.send(notifications(5))
    one.await_states(SENT=5)
    one.verify()


@pytest.mark.soak(
    small="::test_a_database_killed_between_claim_and_settle_costs_no_attempt_and_no_double"
)
def test_best_effort_goes_on_while_the_ledger_of_other_lanes_is_away(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    quick = "webhook.marketing"
    one = broken_fleet(
        lanes=[LANE, quick], lease_s=60, policy={quick: {"guarantee": "best_effort"}}
    )
    worker = one.worker().wait_ready()
    breakable.kill("postgres")
    waiting = one.send(notifications(5))
    await_(lambda: worker.events("ledger_away"), what="it notices")
    one.send(notifications(5, quick))
    worker.await_metric("settled", 5, lane=quick)
    assert not {s.keys[0] for s in waiting} & one.seen().keys()
    breakable.start("postgres")
    one.await_committed()
    one.verify()


# ---- Redis ----------------------------------------------------------------------------------------


def test_redis_flushed_forgetful_frozen_or_down_makes_it_slower_and_nothing_else(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet(partitions=1)
    worker = one.worker().wait_ready()
    troubles: list[Callable[[], object]] = [
        lambda: _flush(one),
        lambda: _forget(breakable),
        lambda: breakable.pause("redis"),
        lambda: breakable.kill("redis"),
    ]
    for number, trouble in enumerate(troubles, start=1):
        one.send(notifications(20))
        one.await_states(SENT=40 * number - 20)
        trouble()
        one.send(notifications(20))
        one.await_states(SENT=40 * number)
    one.await_committed()
    worker.stop()
    one.wire.commit_as_foreigner(Place(one.topics[0], 0), 0)
    again = one.worker().wait_ready()
    one.await_committed()
    again.await_metric("duplicates", 160, by="ledger")
    assert one.verify().doubled == []


def test_a_database_that_refuses_the_login_is_one_sentence_and_code_1_at_once(
    fleet: MakeFleet,
) -> None:
    one = fleet()
    url = one.ground.database_url
    wrong = {
        "password authentication failed": url.replace(":hongyan@", ":s3cret@"),
        'database "nowhere" does not exist': url.rpartition("/")[0] + "/nowhere",
    }
    for said, refused in wrong.items():
        worker = one.worker(DATABASE__URL=refused)
        assert worker.wait() == 1
        (ended,) = worker.events("ended")
        assert ended["text"].startswith(f"database.url: the database refuses us: {said}")
        assert not worker.events("ledger_away"), "it waited first"
        assert "Traceback" not in worker.log_text()
        assert "s3cret" not in worker.log_text()


# ---- Kafka ----------------------------------------------------------------------------------------


def test_kafka_unreachable_at_the_start_is_one_sentence_and_code_1_after_the_time_set(
    fleet: MakeFleet,
) -> None:
    one = fleet(make_topics=False)
    began = time.monotonic()
    worker = one.worker(KAFKA__BOOTSTRAP="127.0.0.1:1", KAFKA__CONNECT_TIMEOUT_S="3")
    await_(lambda: worker.events("kafka_not_reachable"), what="it has begun to wait")
    noticed = time.monotonic()
    assert worker.wait() == 1
    assert time.monotonic() - began >= 3
    assert time.monotonic() - noticed < 15
    assert "Kafka at 127.0.0.1:1 did not answer within 3 s" in worker.log_text()
    assert "Traceback" not in worker.log_text()
    assert len(worker.events("kafka_not_reachable")) == 1


def test_kafka_that_comes_while_a_worker_waits_is_found(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet()
    breakable.pause("kafka-1")
    worker = one.worker()
    await_(lambda: worker.events("kafka_not_reachable"), what="it says so")
    breakable.resume("kafka-1")
    worker.wait_ready()


def test_a_broker_killed_and_back_under_load_loses_and_doubles_nothing(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet(lease_s=60)
    one.slow(50)
    workers = one.start(2)
    one.send(notifications(300))
    await_(lambda: one.accepted() > 30, what="it is under way")
    breakable.kill("kafka-1")
    breakable.start("kafka-1")
    one.send(notifications(50))
    one.await_states(SENT=350)
    one.await_committed()
    assert one.verify().doubled == []
    assert all(worker.running for worker in workers)


def test_a_commit_that_stays_unanswered_is_made_again_when_the_broker_is_back(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    one = broken_fleet(lease_s=60, partitions=1)
    one.slow(400)
    (worker,) = one.start(1)
    one.send(notifications(32))
    await_(lambda: one.accepted() >= 16, what="it is under way")
    breakable.pause("kafka-1")
    one.await_states(SENT=32)
    await_(lambda: _commit_trouble(worker), what="a commit fails or stays unanswered")
    breakable.resume("kafka-1")
    one.await_committed()
    assert one.verify().doubled == []


@pytest.mark.soak(
    small="::test_a_commit_that_stays_unanswered_is_made_again_when_the_broker_is_back"
)
def test_a_commit_blocked_at_shutdown_holds_it_no_longer_than_its_deadline(
    breakable: Stack, broken_fleet: MakeFleet
) -> None:
    drain_s, slack_s = 4.0, 8.0
    one = broken_fleet(lease_s=60, drain_s=drain_s)
    one.slow(1_000)
    (worker,) = one.start(1)
    one.send(notifications(16))
    one.await_in_flight(16)
    breakable.pause("kafka-1")
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < drain_s + slack_s
    breakable.resume("kafka-1")
    one.worker().wait_ready()
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert (verdict.doubled, verdict.states) == ([], {"SENT": 16})


@pytest.fixture
def three_brokers(stack: Stack, private_stack: Private, tmp_path: Path) -> Iterator[ThreeBrokers]:
    brokers = [f"kafka-{number}" for number in (1, 2, 3)]
    with ExitStack() as held:
        cluster = held.enter_context(private_stack(brokers=3, only=brokers))
        ground = held.enter_context(ground_on(stack))
        moved = replace(ground, bootstrap=cluster.bootstrap)
        yield cluster, held.enter_context(Fleet(moved, tmp_path / "fleet", lease_s=60))


ThreeBrokers = tuple[Stack, Fleet]


@pytest.mark.soak(small="::test_a_broker_killed_and_back_under_load_loses_and_doubles_nothing")
def test_the_group_goes_on_when_its_coordinator_dies(three_brokers: ThreeBrokers) -> None:
    cluster, one = three_brokers
    one.slow(50)
    workers = one.start(2)
    one.send(notifications(200))
    await_(lambda: one.accepted() > 20, what="it is under way")
    cluster.kill(f"kafka-{one.wire.coordinator()}")
    one.send(notifications(50))
    one.await_states(SENT=250)
    one.await_committed()
    assert one.verify().doubled == []
    assert all(worker.running for worker in workers)


def _flush(one: Fleet) -> None:
    with redis.Redis.from_url(one.ground.redis_url) as client:
        client.flushall()


def _forget(stack: Stack) -> None:
    """What a fail-over to an empty replica looks like."""
    stack.kill("redis")
    stack.start("redis")


def _commit_trouble(worker: WorkerProcess) -> bool:
    return bool(worker.events("commit_unanswered") or worker.events("commit_failed"))
