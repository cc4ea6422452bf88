"""How `dispatcher.wiring.build` puts the stages together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from backends.settings import DatabaseSettings, KafkaSettings, Settings, WorkerSettings
from channels.tokens.contract import TokenLife
from channels.transports import TransportRouter
from dispatcher.metrics import Metrics
from dispatcher.wiring import BuiltWorker, OpenedBackends, build
from dispatcher.worker import WorkerStages
from idempotency.prefilter_redis import open_prefilter
from idempotency.sql_ledger import open_ledger
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy, Ordering, Policy
from policy.templates.active import ActiveTemplates, TemplateFollower
from policy.templates.page import TemplateSource
from policy.templates.templates import Templates
from policy.versions import Versions
from sending.alerts.notifier import AlertNotifier
from tests.harness.databases import upgraded
from tracing import open_recorder

ORDERED = Lane("webhook", "notice")
PLAIN = Lane("webhook", "verification")
LOOSE = Lane("webhook", "marketing")
LANES = (ORDERED, PLAIN, LOOSE)
POLICY = Policy(
    lanes={
        ORDERED.name: LanePolicy(ordering=Ordering.KEY, threads=2),
        LOOSE.name: LanePolicy(guarantee=Guarantee.BEST_EFFORT, threads=2),
    }
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltWorker]:
    """A worker that was built and not started; nothing listens at its broker's address."""
    database = tmp_path_factory.mktemp("wiring") / "ledger.db"
    settings = Settings(
        database=DatabaseSettings(url=f"sqlite:///{database}"),
        kafka=KafkaSettings(bootstrap="127.0.0.1:9", group_protocol="classic"),
        worker=WorkerSettings(id="wired"),
        accounts={"main": {"provider": "webhook", "endpoint": "http://127.0.0.1:9"}},
    )
    upgraded(settings)
    with ExitStack() as stack:
        ledger = open_ledger(settings)
        stack.callback(ledger.close)
        recorder = open_recorder(settings)
        stack.callback(recorder.close)
        tokens: Any = NoTokens()
        metrics = Metrics()
        parts = OpenedBackends(
            ledger=ledger,
            announced=ledger.announced,
            prefilter=open_prefilter(settings, ledger.identity()),
            recorder=recorder,
            transport=TransportRouter(),
            tokens=tokens,
            templates=TemplateFollower(
                ActiveTemplates(Templates(), 0, TemplateSource("", {}), False), None, {}
            ),
            metrics=metrics,
            alerts=AlertNotifier(metrics.registry, 60.0),
            versions=Versions(ledger.database),
            controls=ledger.controls(),
            sums=ledger.sums(),
            number=0,
            protocol="classic",
            stack=stack,
        )
        yield build(settings, POLICY, LANES, parts, threading.Event())


class NoTokens:
    def refused_logins(self) -> list[str]:
        return []

    def lives(self) -> dict[str, TokenLife]:
        return {}


def stages_of(app: BuiltWorker) -> WorkerStages:
    return app.worker._stages


def test_lanes_with_a_ledger_and_lanes_without_have_a_door_each(app: BuiltWorker) -> None:
    entries = [{lane.name for lane in entry.lanes} for entry in stages_of(app).entries]
    assert entries == [{ORDERED.name, PLAIN.name}, {LOOSE.name}]


def test_every_lane_has_a_pool_and_is_served_by_one_screen(app: BuiltWorker) -> None:
    stages = stages_of(app)
    assert set(app.pools) == {lane.name for lane in LANES}
    assert stages.pools == list(app.pools.values())
    screens = {lane: entry.screen for entry in stages.entries for lane in entry.lanes}
    assert stages.source._inboxes == screens


def test_whatever_ends_goes_to_settle_over_one_queue(app: BuiltWorker) -> None:
    stages = stages_of(app)
    queue = stages.settle._finished
    assert all(pool._finished is queue for pool in stages.pools)
    assert all(entry.intake._finished is queue for entry in stages.entries)
    assert all(entry.screen._finished is queue for entry in stages.entries)


def test_claims_ride_with_the_commits_of_the_ledgers_lanes_alone(app: BuiltWorker) -> None:
    ledger, loose = stages_of(app).entries
    assert ledger.combined_commit is not None
    assert stages_of(app).settle._combined_commit is ledger.combined_commit
    assert loose.combined_commit is None


def test_the_lanes_that_keep_order_are_known_where_it_counts(app: BuiltWorker) -> None:
    stages = stages_of(app)
    gate: Any = stages.entries[0].intake._gate
    assert stages.settle._ordered == gate._ordered == {ORDERED.name}
    assert stages.completion._hurried == {ORDERED}


def test_what_intake_takes_its_own_screen_hears_of(app: BuiltWorker) -> None:
    for entry in stages_of(app).entries:
        assert entry.intake.on_taken == entry.screen.wanted


def test_one_outage_of_the_ledger_is_seen_by_all_that_use_it(app: BuiltWorker) -> None:
    stages = stages_of(app)
    gate: Any = stages.entries[0].intake._gate
    assert stages.settle._outage is gate._outage is stages.outage


def test_claims_that_waited_are_judged_again_by_the_gates_that_judged_them(
    app: BuiltWorker,
) -> None:
    intake = stages_of(app).entries[0].intake
    gate: Any = intake._gate
    assert intake._gates is not None
    assert gate._judge_again == intake._gates.judge_again


def test_the_health_page_watches_every_loop_that_may_stand_still(app: BuiltWorker) -> None:
    watched = set(app.health._beats)
    assert watched == {
        *("answers", "source", "settle", "aftermath"),
        *("screen-0", "intake-0", "screen-1", "intake-1"),
    }


def test_the_worker_is_registered_before_it_starts(app: BuiltWorker) -> None:
    lease = stages_of(app).lease
    ledger: Any = lease._ledger
    with ledger.database.connection() as connection:
        found = connection.execute("SELECT id, lanes FROM hongyan_workers").fetchall()
    assert [row[0] for row in found] == ["wired"]
    assert lease.term
