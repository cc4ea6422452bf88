"""Places of a process: which process sends which campaigns where there are more than one process sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from producer.campaigns import runner as runner_module
from producer.campaigns import store as store_module
from producer.campaigns.contract import (
    Campaign,
    CampaignLimits,
    CampaignSchedule,
    CampaignState,
    CrowdColumns,
    CrowdSource,
)
from producer.campaigns.run_sender import RunEnd
from producer.campaigns.run_store import runs_of
from producer.campaigns.runner import CampaignRunner, RunnerParts
from producer.campaigns.store import campaigns_of
from producer.campaigns.telemetry import CampaignTelemetry
from tests.harness.databases import upgraded
from tests.harness.waiting import await_

PLACES = 2
LATE_S = 600


class Sender:
    """Stands for `RunOpening`: sends until its end under the real lease."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.over = threading.Event()

    @contextmanager
    def opened(self, campaign: Campaign, around: Any) -> Iterator[Any]:
        def run() -> RunEnd:
            self.sent.add(campaign.id)
            while not around.stopping() and around.lease.holds() and not self.over.wait(0.01):
                pass
            return RunEnd.DONE if self.over.is_set() else RunEnd.STOPPED

        yield SimpleNamespace(run=run)


class Process:
    """One process's runner; the test makes its looks."""

    def __init__(self, ledger: SqlLedger, name: str) -> None:
        self.sender = Sender()
        self.registry = CollectorRegistry()
        self.stop = threading.Event()
        telemetry = CampaignTelemetry(self.registry, lambda: time.time_ns() // 1_000_000)
        parts = RunnerParts(
            store=campaigns_of(ledger),
            runs=runs_of(ledger),
            duties=ledger.duties(),
            publisher=None,  # type: ignore[arg-type]
            accepted=lambda *_: None,
            opening=self.sender,  # type: ignore[arg-type]
            telemetry=telemetry,
        )
        self.runner = CampaignRunner(
            parts, holder=name, lease_s=15.0, stop=self.stop, monotonic=time.monotonic
        )

    @property
    def late_s(self) -> float:
        return self.registry.get_sample_value("hongyan_campaigns_late_seconds") or 0.0

    @property
    def scheduled(self) -> float | None:
        labels = {"state": "SCHEDULED"}
        return self.registry.get_sample_value("hongyan_campaigns_open", labels)

    def look(self) -> None:
        self.runner.run_once()
        await_(lambda: self.sender.sent >= set(self.runner._threads), what="its runs are sent")

    def end(self) -> None:
        self.stop.set()
        self.runner.join()


class Fleet:
    """Campaigns that were due LATE_S ago, and processes that share them."""

    def __init__(self, ledger: SqlLedger) -> None:
        self.ledger = ledger
        self.store = campaigns_of(ledger)
        self.processes: list[Process] = []

    def process(self) -> Process:
        found = Process(self.ledger, f"process-{len(self.processes)}")
        self.processes.append(found)
        return found

    def due(
        self, count: int, prefix: str = "cm", hours: str = "", late_s: int = LATE_S
    ) -> list[str]:
        now = self.store.now_ms()
        for number in range(count):
            made = self.store.make(
                Campaign(
                    id=f"{prefix}-{number:02}",
                    state=CampaignState.NEW,
                    version=1,
                    lane="sms.marketing",
                    template="sale",
                    crowd=CrowdSource(path="/c.csv", format="csv", size=1, sha256="0", rows=1),
                    columns=CrowdColumns(),
                    schedule=CampaignSchedule(zone="UTC"),
                    limits=CampaignLimits(hours=hours),
                    author="li",
                    reason="r",
                    created_at=now,
                    since=now,
                )
            )
            due = now - late_s * 1_000
            self.store.advance(made, state=CampaignState.SCHEDULED, next_at=due)
        return [f"{prefix}-{number:02}" for number in range(count)]

    def states(self) -> list[str]:
        newest = self.store.newest(100)
        states = [one.state.value for one in reversed(newest)]
        return [one for one in states if one in ("SCHEDULED", "RUNNING")]


@pytest.fixture
def fleet(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(runner_module, "MOST_RUNS", PLACES)
    settings = Settings(database=DatabaseSettings(url=url))
    upgraded(settings)
    ledger = open_ledger(settings)
    opened = Fleet(ledger)
    yield opened
    for process in opened.processes:
        process.end()
    ledger.close()


def test_a_second_process_sends_the_campaigns_that_the_first_has_no_place_for(fleet: Fleet) -> None:
    names = fleet.due(2 * PLACES)
    first, second = fleet.process(), fleet.process()
    first.look()
    for _ in range(2):
        second.look()
        first.look()
    assert first.sender.sent == set(names[:PLACES])
    assert second.sender.sent == set(names[PLACES:])
    assert first.late_s == second.late_s == 0


def test_a_due_run_without_a_place_is_not_opened_and_counts_as_late(fleet: Fleet) -> None:
    fleet.due(PLACES + 1)
    first = fleet.process()
    for _ in range(2):
        first.look()
    assert fleet.states() == ["RUNNING"] * PLACES + ["SCHEDULED"]
    assert first.late_s == pytest.approx(LATE_S, abs=60)


def test_an_ended_run_gives_its_place_to_the_next_due_one(fleet: Fleet) -> None:
    names = fleet.due(PLACES + 1)
    first = fleet.process()
    first.look()
    first.sender.over.set()
    await_(lambda: fleet.states() == ["SCHEDULED"], what="the first runs are done")
    first.sender.over.clear()
    first.look()
    assert first.sender.sent == set(names)


def test_a_run_that_no_process_sends_counts_as_late(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ended, and the others have no place for its open runs."""
    fleet.due(2 * PLACES)
    first, second = fleet.process(), fleet.process()
    first.look()
    second.look()
    second.end()
    first.look()
    begin = time.time()
    monkeypatch.setattr(time, "time_ns", lambda: int((begin + LATE_S) * 1e9))
    first.look()
    assert fleet.states() == ["RUNNING"] * 2 * PLACES
    assert first.late_s == pytest.approx(LATE_S, abs=60)


def test_a_run_outside_its_hours_takes_no_place_and_is_not_late(fleet: Fleet) -> None:
    later = datetime.now(UTC) + timedelta(hours=3)
    fleet.due(PLACES, "night", f"{later:%H:00}-{later + timedelta(hours=1):%H:00}")
    names = fleet.due(PLACES)
    first = fleet.process()
    for _ in range(2):
        first.look()
    assert first.sender.sent == set(names)
    assert fleet.states() == ["RUNNING"] * 2 * PLACES
    assert first.late_s == 0


def test_many_campaigns_that_wait_for_their_time_hold_up_no_newer_one(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_DUE", 2)
    fleet.due(5, "crons", late_s=-3_600)
    names = fleet.due(1, "newer")
    first = fleet.process()
    first.look()
    assert first.sender.sent == set(names)
    assert first.scheduled == 6
    first.look()
    assert (first.scheduled, first.late_s) == (5, 0)


def test_of_many_due_campaigns_those_that_wait_longest_go_first(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_DUE", 1)
    fleet.due(3, "short", late_s=60)
    names = fleet.due(1, "long")
    first = fleet.process()
    first.look()
    assert first.sender.sent == set(names)
    assert first.late_s == pytest.approx(LATE_S, abs=60)
    first.look()
    assert len(first.sender.sent) == 2


def test_a_look_reads_the_index_of_open_campaigns(fleet: Fleet) -> None:
    fleet.due(3)
    with fleet.ledger.database.begin() as connection:
        if connection.dialect.name == "postgresql":
            pytest.skip("its planner reads so small a table whole")
        for statement in (store_module._COUNTS, store_module._RUNNING, store_module._DUE):
            asked = text(f"EXPLAIN QUERY PLAN {statement.text}")
            values = {"now": 1, "limit": 1} if statement is store_module._DUE else {}
            plan = "\n".join(str(row) for row in connection.execute(asked, values))
            assert "campaigns_open" in plan
