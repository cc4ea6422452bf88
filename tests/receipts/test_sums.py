"""Receipts that moved a delivery are in the sums, and no other ones."""

from idempotency.receipts.rules import ApplyResult, CandidateRow, ReceiptVerdict, StoredReceipt
from message.states import State
from receipts.metrics import ReceiptMetrics


def verdict(state: State | None, *, moves: bool) -> ReceiptVerdict:
    receipt = StoredReceipt("main", "p-1", "", "", "DELIVERED", None, 0)
    row = CandidateRow(
        *("key", 1, "SENT", 1, "p-1", None, "main", b"", "m-1", None), lane="sms.notice", attempt=1
    )
    applied = ApplyResult.APPLIED if moves else ApplyResult.REPEATED
    return ReceiptVerdict(receipt, row, applied, state, moves=moves)


def test_what_a_receipt_moved_is_counted_once() -> None:
    metrics = ReceiptMetrics()
    moved = [verdict(State.DELIVERED, moves=True)] * 2
    metrics.judged([*moved, verdict(State.DELIVERED, moves=False), verdict(None, moves=False)])
    (row,) = metrics.sums.unwritten()
    assert row[1:5] == ("sms.notice", "main", "DELIVERED", 2)
