"""A receipts process has its row among the processes, with what its accounts reported."""

import threading

from backends.metrics.families import RECEIPTS
from idempotency.fleet.snapshots import ProcessSnapshot, ReceiptSnapshot
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.sql_ledger import SqlLedger
from receipts.arrivals import Arrivals
from sending.runtime.heartbeat import ProcessHeartbeat


def receipt(account: str, at: int = 0) -> Receipt:
    return Receipt(account, ReceiptState.DELIVERED, provider_id=f"p-{at}", at=at)


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
    heartbeat = ProcessHeartbeat(
        ledger,
        RECEIPTS,
        "receipts-1",
        threading.Event(),
        snapshot=lambda: ProcessSnapshot(4, receipts=arrivals.snapshot()),
    )
    heartbeat.beat()
    (shown,) = ledger.fleet_status().processes()
    assert (shown.id, shown.kind, shown.lanes, shown.lost) == ("receipts-1", RECEIPTS, [], False)
    assert shown.snapshot == ProcessSnapshot(4, receipts={"main": ReceiptSnapshot()})
    assert ledger.live_lanes() == [frozenset()], "it counts for no lane"
    heartbeat.close()
    assert ledger.fleet_status().processes() == []
