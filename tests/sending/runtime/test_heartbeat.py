"""The heartbeat of a process that calls no provider: its row, its backlog, and orders to drain."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from backends.settings import DatabaseSettings, Settings
from idempotency.fleet.snapshots import BacklogSnapshot
from idempotency.fleet.status import Process
from idempotency.ledger import LedgerUnavailable
from idempotency.sql_ledger import SqlLedger, open_ledger
from sending.runtime.heartbeat import ProcessHeartbeat
from tests.harness.databases import upgraded


@pytest.fixture
def ledger(sqlite_database: str) -> Iterator[SqlLedger]:
    settings = Settings(database=DatabaseSettings(url=sqlite_database))
    upgraded(settings)
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


def only(ledger: SqlLedger) -> Process:
    (found,) = ledger.fleet_status().processes()
    return found


def test_the_row_has_kind_version_and_backlog_and_no_lane(ledger: SqlLedger) -> None:
    waits = BacklogSnapshot(waiting=12, oldest_s=3.5, parked=1)
    ProcessHeartbeat(ledger, "relay", "relay-1", threading.Event(), lambda: waits).beat()
    found = only(ledger)
    assert (found.id, found.kind, found.state, found.lanes) == ("relay-1", "relay", "RUNNING", [])
    assert found.program
    assert not found.lost
    assert found.snapshot is not None
    assert found.snapshot.backlog == waits


def test_it_takes_no_share_of_any_lanes_rate(ledger: SqlLedger) -> None:
    ProcessHeartbeat(ledger, "gateway", "gateway-1", threading.Event()).beat()
    assert ledger.sending_lanes() == [frozenset()]


def test_an_order_to_drain_sets_stop_and_shows_at_once(ledger: SqlLedger) -> None:
    stop = threading.Event()
    heartbeat = ProcessHeartbeat(ledger, "lookback", "lookback-1", stop)
    heartbeat.beat()
    assert not stop.is_set()
    assert ledger.controls().drain("lookback-1", author="lin", reason="repairs")
    heartbeat.beat()
    assert stop.is_set()
    assert only(ledger).state == "DRAINING"


def test_an_order_to_an_earlier_life_drains_no_later_one(ledger: SqlLedger) -> None:
    first = ProcessHeartbeat(ledger, "campaigns", "campaigns-1", threading.Event())
    first.beat()
    assert ledger.controls().drain("campaigns-1", author="lin", reason="repairs")
    first.close()
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE worker_drains SET asked_at = asked_at - 10")
    stop = threading.Event()
    ProcessHeartbeat(ledger, "campaigns", "campaigns-1", stop).beat()
    assert not stop.is_set()


def test_after_its_end_it_is_in_no_list(ledger: SqlLedger) -> None:
    heartbeat = ProcessHeartbeat(ledger, "gateway", "gateway-1", threading.Event())
    heartbeat.start()
    heartbeat.close()
    heartbeat.close()
    assert ledger.fleet_status().processes() == []


def test_a_swept_life_registers_again(ledger: SqlLedger) -> None:
    heartbeat = ProcessHeartbeat(ledger, "gateway", "gateway-1", threading.Event())
    heartbeat.beat()
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE workers SET heartbeat_at = heartbeat_at - 60000")
    assert only(ledger).lost
    assert ledger.sweep() == [("gateway-1", 0)]
    heartbeat.beat()
    assert not only(ledger).lost


def test_a_backlog_that_cannot_be_read_ends_nothing(ledger: SqlLedger) -> None:
    answers: list[BacklogSnapshot | None] = [BacklogSnapshot(4), None]

    def backlog() -> BacklogSnapshot | None:
        if not answers:
            raise LedgerUnavailable("the database is away")
        return answers.pop()

    heartbeat = ProcessHeartbeat(ledger, "lookback", "lookback-1", threading.Event(), backlog)
    heartbeat.beat()
    snapshot = only(ledger).snapshot
    assert snapshot is not None
    assert snapshot.backlog is None
    heartbeat.beat()
    heartbeat.beat()
    kept = only(ledger).snapshot
    assert kept is not None
    assert kept.backlog == BacklogSnapshot(4), "the last one that was measured"
