"""The matcher's loop: what it does between two passes."""

import pytest

from idempotency.receipts import sql
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.receipts.sql import open_receipts
from idempotency.sql_ledger import SqlLedger
from message.states import Event
from receipts.matcher import Matcher
from receipts.metrics import ReceiptMetrics
from tests.idempotency.making import World, claimed, delivery, settle
from tracing.events import NoRecorder

DAY_MS = 86_400_000


def test_new_receipts_are_placed_between_two_batches_of_old_ones(
    world: World, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `keep_days` was lowered: millions are forgotten, and nothing else may wait for that."""
    monkeypatch.setattr(sql, "_FORGET", 2)
    receipts = open_receipts(ledger, world.settings, lambda: world.now)
    (item,) = claimed(ledger, delivery())
    item.account = "ali"
    settle(ledger, item, Event.ACCEPTED, provider_id="new")
    receipts.store([Receipt("ali", ReceiptState.SENT, f"old-{n}") for n in range(6)])
    world.advance(2 * DAY_MS)
    matcher = Matcher(receipts, NoRecorder(), ReceiptMetrics(), every_s=1, keep_days=1)
    forget, seen = receipts.forget, []

    def then_one_comes(keep_ms: int) -> tuple[int, int]:
        seen.append((world.states()[item.key], matcher.beat))
        gone = forget(keep_ms)
        receipts.store([Receipt("ali", ReceiptState.DELIVERED, "new")])
        return gone

    monkeypatch.setattr(receipts, "forget", then_one_comes)
    matcher.run_once()
    assert [state for state, _ in seen] == ["SENT", *["DELIVERED"] * 3]
    beats = [beat for _, beat in seen]
    assert sorted(set(beats)) == beats, "the health page sees that it goes on"
    assert world.rows("SELECT count(*) FROM receipts") == [(1,)]
