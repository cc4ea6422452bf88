"""How `dispatcher.wiring.build` puts the stages together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dispatcher.wiring import BuiltWorker, build
from dispatcher.worker import WorkerStages
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy, Ordering, Policy
from tests.dispatcher.building import opened, settings_of

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
    settings = settings_of(tmp_path_factory.mktemp("wiring") / "ledger.db", "webhook")
    with ExitStack() as stack:
        yield build(settings, POLICY, LANES, opened(settings, stack), threading.Event())


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


def test_whatever_ends_goes_to_the_settle_of_its_entry_over_one_queue(app: BuiltWorker) -> None:
    stages = stages_of(app)
    for entry, settle in zip(stages.entries, stages.settles, strict=True):
        queue = settle._finished
        assert set(settle._pools) == {lane.name for lane in entry.lanes}
        assert all(pool._finished is queue for pool in entry.pools)
        assert entry.intake._finished is queue
        assert entry.screen._finished is queue
        assert settle._on_room == entry.intake.room_made
        assert settle._on_settled == stages.completion.put
    assert stages.settles[0]._finished is not stages.settles[1]._finished


def test_claims_ride_with_the_commits_of_the_ledgers_lanes_alone(app: BuiltWorker) -> None:
    ledger, loose = stages_of(app).entries
    assert ledger.combined_commit is not None
    commits = [settle._combined_commit for settle in stages_of(app).settles]
    assert commits == [ledger.combined_commit, None]
    assert loose.combined_commit is None


def test_the_lanes_that_keep_order_are_known_where_it_counts(app: BuiltWorker) -> None:
    stages = stages_of(app)
    gate: Any = stages.entries[0].intake._gate
    assert stages.settles[0]._ordered == gate._ordered == {ORDERED.name}
    assert stages.completion._hurried == {ORDERED}


def test_what_intake_takes_its_own_screen_hears_of(app: BuiltWorker) -> None:
    for entry in stages_of(app).entries:
        assert entry.intake.on_taken == entry.screen.wanted


def test_one_outage_of_the_ledger_is_seen_by_all_that_use_it(app: BuiltWorker) -> None:
    stages = stages_of(app)
    gate: Any = stages.entries[0].intake._gate
    assert stages.settles[0]._outage is gate._outage is stages.outage


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
        *("answers", "source", "aftermath"),
        *("screen-0", "intake-0", "settle-0", "screen-1", "intake-1", "settle-1"),
    }


def test_the_worker_is_registered_before_it_starts(app: BuiltWorker) -> None:
    lease = stages_of(app).lease
    ledger: Any = lease._ledger
    with ledger.database.connection() as connection:
        found = connection.execute("SELECT id, lanes FROM hongyan_workers").fetchall()
    assert [row[0] for row in found] == ["wired"]
    assert lease.term
