"""A receipts process has its row among the processes, with what its accounts reported."""

import pytest

from idempotency.fleet.snapshots import ProcessSnapshot, ReceiptSnapshot
from idempotency.ledger import RECEIPTS, LedgerUnavailable
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.sql_ledger import SqlLedger
from receipts.arrivals import Arrivals
from receipts.heartbeat import ReceiptHeartbeat


def receipt(account: str, at: int = 0) -> Receipt:
    return Receipt(account, ReceiptState.DELIVERED, provider_id=f"p-{at}", at=at)


def heartbeat_of(ledger: SqlLedger, arrivals: Arrivals) -> ReceiptHeartbeat:
    def snapshot() -> ProcessSnapshot:
        return ProcessSnapshot(4, receipts=arrivals.snapshot())

    return ReceiptHeartbeat(ledger, "receipts-1", snapshot, every_s=3_600)


def test_arrivals_know_the_newest_receipt_and_how_late_its_batch_was() -> None:
    now = [100.0]
    arrivals = Arrivals(["a", "b"], monotonic=lambda: now[0], wall_ms=lambda: 60_000)
    arrivals.stored([receipt("a", 57_000), receipt("a", 59_000), receipt("c")])
    arrivals.answered("b")
    now[0] = 107.9
    assert arrivals.snapshot() == {
        "a": ReceiptSnapshot(taken=2, last_s=7, lag_s=3.0),
        "b": ReceiptSnapshot(asked_s=7),
        "c": ReceiptSnapshot(taken=1, last_s=7),
    }


def test_a_provider_whose_clock_is_ahead_has_no_negative_lag() -> None:
    arrivals = Arrivals(monotonic=lambda: 0.0, wall_ms=lambda: 1_000)
    arrivals.stored([receipt("a", 5_000)])
    assert arrivals.snapshot()["a"].lag_s == 0.0


def test_the_process_is_in_the_list_until_it_ends(ledger: SqlLedger) -> None:
    arrivals = Arrivals(["main"])
    heartbeat = heartbeat_of(ledger, arrivals)
    heartbeat.start()
    (shown,) = ledger.fleet_status().processes()
    assert (shown.id, shown.kind, shown.lanes, shown.lost) == ("receipts-1", RECEIPTS, [], False)
    assert shown.snapshot == ProcessSnapshot(4, receipts={"main": ReceiptSnapshot()})
    assert ledger.live_lanes() == [frozenset()], "it counts for no lane"
    heartbeat.close()
    assert ledger.fleet_status().processes() == []
    heartbeat.beat()
    assert ledger.fleet_status().processes() == [], "a late beat brings nothing back"


def test_a_life_that_somebody_ended_begins_anew(ledger: SqlLedger) -> None:
    heartbeat = heartbeat_of(ledger, Arrivals())
    heartbeat.start()
    assert heartbeat._lease is not None
    ledger.retire(heartbeat._lease)
    heartbeat.beat()
    heartbeat.beat()
    (shown,) = ledger.fleet_status().processes()
    assert shown.state == "RUNNING"
    heartbeat.close()


def test_without_the_database_it_goes_on(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = heartbeat_of(ledger, Arrivals())
    heartbeat.start()

    def away(*_: object) -> None:
        raise LedgerUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "heartbeat", away)
        heartbeat.beat()
    heartbeat.beat()
    (shown,) = ledger.fleet_status().processes()
    assert not shown.lost
    heartbeat.close()
