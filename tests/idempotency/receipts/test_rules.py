"""Receipts against real ledgers: what they move, what they wait for, and what they never undo."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from backends.settings import Settings
from idempotency.ledger import Settlement
from idempotency.receipts.lookups import receipts_of
from idempotency.receipts.rules import ApplyResult, Receipt, ReceiptState, decide
from idempotency.receipts.sql import PG_CANDIDATES, open_receipts
from idempotency.receipts.store import Receipts, wait_ms
from idempotency.recovery.contract import RecoveryStore
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.states import Event, State
from tests.idempotency.making import World, claimed, claims, deliveries, delivery, settle
from tests.idempotency.recovery.test_contract import LANE, moved, recovering, take

__all__ = ["recovering"]

ACCOUNT = "aliyun"
DAY_MS = 86_400_000


@pytest.fixture
def receipts(world: World, ledger: SqlLedger) -> Receipts:
    return open_receipts(ledger, world.settings, lambda: world.now)


def sent(ledger: SqlLedger, item: Delivery, provider_id: str | None = "biz-1") -> Delivery:
    (item,) = claimed(ledger, item)
    item.account = ACCOUNT
    assert settle(ledger, item, Event.ACCEPTED, provider_id=provider_id)
    return item


def doubted(ledger: SqlLedger, item: Delivery) -> Delivery:
    (item,) = claimed(ledger, item)
    item.account = ACCOUNT
    assert settle(ledger, item, Event.UNKNOWN, reason="timeout")
    return item


def resent(ledger: SqlLedger, recovering: RecoveryStore, event: Event, **fields: Any) -> Delivery:
    """A delivery in doubt that waits for another call."""
    item = delivery(**fields)
    item.call_key = item.key
    item = doubted(ledger, item)
    (doubt,) = recovering.doubts(LANE, 0)
    assert recovering.move([moved(doubt.delivery, doubt.version, event, "why")]) == [True]
    return item


def receipt(
    said: ReceiptState = ReceiptState.DELIVERED, provider_id: str = "biz-1", **fields: Any
) -> Receipt:
    fields.setdefault("account", ACCOUNT)
    fields.setdefault("receivers", ("+8613800000001",))
    return Receipt(said=said, provider_id=provider_id, **fields)


def applied(receipts: Receipts) -> list[ApplyResult | None]:
    return [verdict.applied for verdict in receipts.match().verdicts]


def states(world: World, *items: Delivery) -> list[str]:
    found = world.states()
    return [found[item.key] for item in items]


def row(world: World, item: Delivery, columns: str) -> tuple[Any, ...]:
    return world.rows(f"SELECT {columns} FROM deliveries WHERE delivery_key = '{item.key}'")[0]


@pytest.mark.parametrize("said", [ReceiptState.DELIVERED, ReceiptState.UNDELIVERED])
def test_a_receipt_moves_what_was_sent(
    world: World, ledger: SqlLedger, receipts: Receipts, said: ReceiptState
) -> None:
    item = sent(ledger, delivery())
    receipts.store([receipt(said, code="MK:0001" if said is ReceiptState.UNDELIVERED else None)])
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert states(world, item) == [said.value]
    assert row(world, item, "reason") == ("MK:0001" if said is ReceiptState.UNDELIVERED else None,)


def test_a_repeated_receipt_is_stored_once_and_moves_nothing(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    item = sent(ledger, delivery())
    assert receipts.store([receipt(), receipt()]) == 1
    assert applied(receipts) == [ApplyResult.APPLIED]
    before = row(world, item, "version, updated_at")
    world.advance(5_000)
    assert receipts.store([receipt()]) == 0
    assert applied(receipts) == []
    assert row(world, item, "version, updated_at") == before


def test_the_first_final_word_stays_and_the_contradiction_is_recorded(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    item = sent(ledger, delivery())
    receipts.store([receipt(ReceiptState.DELIVERED)])
    assert applied(receipts) == [ApplyResult.APPLIED]
    receipts.store([receipt(ReceiptState.UNDELIVERED, code="late")])
    assert applied(receipts) == [ApplyResult.CONTRADICTED]
    assert states(world, item) == ["DELIVERED"]
    told = world.rows("SELECT state, applied, delivery_key FROM receipts ORDER BY state")
    assert told == [
        ("DELIVERED", "applied", item.key),
        ("UNDELIVERED", "contradicted", item.key),
    ]


def test_contradictions_of_one_batch_are_settled_by_which_happened_first(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    item = sent(ledger, delivery())
    receipts.store([receipt(ReceiptState.DELIVERED, at=2), receipt(ReceiptState.UNDELIVERED, at=1)])
    assert sorted(map(str, applied(receipts))) == ["applied", "contradicted"]
    assert states(world, item) == ["UNDELIVERED"]


def test_a_receipt_that_overtakes_the_outcome_waits_for_it(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    (item,) = claimed(ledger, delivery())
    item.account = ACCOUNT
    receipts.store([receipt(call_key=item.key)])
    assert receipts.match().waiting == 1
    assert states(world, item) == ["IN_FLIGHT"]
    assert settle(ledger, item, Event.ACCEPTED, provider_id="biz-1")
    assert applied(receipts) == []  # it is not looked at before its time
    world.advance(1_000)
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert states(world, item) == ["DELIVERED"]


def test_a_receipt_proves_that_a_delivery_in_doubt_was_sent(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    arrived, failed, only_sent = (doubted(ledger, delivery()) for _ in range(3))
    receipts.store(
        [
            receipt(ReceiptState.DELIVERED, "id-1", call_key=arrived.key),
            receipt(ReceiptState.UNDELIVERED, "id-2", call_key=failed.key, code="DB:0141"),
            receipt(ReceiptState.SENT, "id-3", call_key=only_sent.key),
        ]
    )
    assert applied(receipts) == [ApplyResult.APPLIED] * 3
    assert states(world, arrived, failed, only_sent) == ["DELIVERED", "UNDELIVERED", "SENT"]
    assert row(world, arrived, "provider_id, reason") == ("id-1", None)
    assert row(world, failed, "provider_id, reason") == ("id-2", "DB:0141")


def test_a_receipt_ends_the_doubt_of_a_delivery_that_waits_to_be_sent_again(
    world: World, ledger: SqlLedger, receipts: Receipts, recovering: RecoveryStore
) -> None:
    """A provider without a query reports within seconds, and recovery has decided within one."""
    arrived, failed = (resent(ledger, recovering, Event.RESEND_UNPROVEN) for _ in range(2))
    receipts.store(
        [
            receipt(ReceiptState.DELIVERED, "id-1", call_key=arrived.key),
            receipt(ReceiptState.UNDELIVERED, "id-2", call_key=failed.key, code="DB:0141"),
        ]
    )
    assert applied(receipts) == [ApplyResult.APPLIED] * 2
    assert states(world, arrived, failed) == ["DELIVERED", "UNDELIVERED"]
    assert row(world, arrived, "provider_id, reason, next_at") == ("id-1", None, None)
    world.advance(60_000)
    assert take(recovering).taken == []


def test_a_receipt_does_not_move_a_retry_that_was_proved_unsent(
    world: World, ledger: SqlLedger, receipts: Receipts, recovering: RecoveryStore
) -> None:
    item = resent(ledger, recovering, Event.RESOLVED_NOT_SENT)
    receipts.store([receipt(call_key=item.key)])
    assert receipts.match().waiting == 1
    assert states(world, item) == ["RETRY"]


def test_a_receipt_of_an_ordered_retry_in_doubt_wakes_the_next_of_its_line(
    world: World, ledger: SqlLedger, receipts: Receipts, recovering: RecoveryStore
) -> None:
    first = resent(ledger, recovering, Event.RESEND_UNPROVEN, ordering_key="k")
    (behind,) = claims([delivery(ordering_key="k")])
    (answer,) = ledger.claim([behind], "w1", ordered=True)
    assert answer.state is State.RETRY
    receipts.store([receipt(call_key=first.key)])
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert row(world, behind.delivery, "state, next_at") == ("RETRY", world.now)


def test_a_receipt_that_waits_is_shown_with_its_delivery(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    """A person decides about a parked delivery in doubt: the provider's word has to be there."""
    item = doubted(ledger, delivery())
    (doubt,) = ledger.recovering().doubts(LANE, 0)
    ledger.recovering().move([moved(doubt.delivery, doubt.version, Event.PARK_UNPROVEN)])
    receipts.store([receipt(call_key=item.key), receipt(provider_id="never")])
    assert receipts.match().waiting == 2
    (shown,) = receipts_of(ledger.database, item.key)
    assert (shown.state, shown.applied) == ("DELIVERED", None)


@pytest.mark.parametrize("provider_id", ["biz-1", ""])
def test_a_receipt_that_came_during_the_call_is_evidence_about_its_doubt(
    world: World, ledger: SqlLedger, receipts: Receipts, provider_id: str
) -> None:
    (item, other) = claimed(ledger, delivery(), delivery())
    item.account = other.account = ACCOUNT
    receipts.store([receipt(provider_id=provider_id, call_key=item.key)])
    assert receipts.match().waiting == 1
    for one in (item, other):
        assert settle(ledger, one, Event.UNKNOWN, reason="timeout")
    found = {d.delivery.key: d.receipt for d in ledger.recovering().doubts(LANE, 0)}
    assert found == {item.key: provider_id, other.key: None}


def test_a_receipt_of_an_earlier_call_is_no_evidence_about_a_later_one(
    world: World, ledger: SqlLedger, receipts: Receipts, recovering: RecoveryStore
) -> None:
    (item,) = claimed(ledger, delivery())
    item.account = ACCOUNT
    receipts.store([receipt(call_key=item.key)])
    assert receipts.match().waiting == 1
    assert settle(ledger, item, Event.NOT_SENT, reason="http_429")
    world.advance(10)
    (taken,) = take(recovering).taken
    taken.delivery.account = ACCOUNT
    assert settle(ledger, taken.delivery, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 0)
    assert doubt.receipt is None


def test_all_deliveries_of_a_call_in_doubt_are_found_by_its_key(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    numbers = [f"+86138000000{n:02}" for n in range(20)]
    items = [doubted(ledger, one) for one in deliveries(receivers=numbers)]
    call = items[0].key
    for item in items[1:]:
        _name_call(world, item, call)
    receipts.store(
        [receipt(provider_id="biz-9", call_key=call, receivers=(one,)) for one in numbers[:19]]
    )
    assert applied(receipts) == [ApplyResult.APPLIED] * 19
    assert states(world, *items) == ["DELIVERED"] * 19 + ["UNKNOWN"]


def test_one_provider_id_for_many_receivers_moves_only_the_one_named(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    items = [
        sent(ledger, one) for one in deliveries(receivers=["+8613800000001", "+8613800000002"])
    ]
    receipts.store([receipt(receivers=("+13800000002", "+8613800000002"))])
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert states(world, *items) == ["SENT", "DELIVERED"]


def test_a_receipt_without_a_receiver_is_placed_only_where_one_row_has_its_name(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    one = sent(ledger, delivery(), "only")
    two = [sent(ledger, d, "both") for d in deliveries(receivers=["+8613800000001", "+861380002"])]
    receipts.store([receipt(provider_id=name, receivers=()) for name in ("only", "both")])
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert states(world, one, *two) == ["DELIVERED", "SENT", "SENT"]


def test_another_accounts_receipt_moves_nothing(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    item = sent(ledger, delivery())
    receipts.store([receipt(account="stranger")])
    assert receipts.match().waiting == 1
    assert states(world, item) == ["SENT"]


def test_a_receipt_of_an_earlier_call_does_not_move_the_row_of_a_later_one(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    item = sent(ledger, delivery(), "second-call")
    receipts.store([receipt(provider_id="first-call", call_key=item.key)])
    assert receipts.match().waiting == 1
    assert states(world, item) == ["SENT"]


def test_an_unknown_id_is_kept_and_matched_when_its_row_comes(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    receipts.store([receipt(provider_id="from-elsewhere")])
    for _ in range(5):
        assert receipts.match().waiting == 1
        world.advance(wait_ms(DAY_MS))
    item = sent(ledger, delivery(), "from-elsewhere")
    world.advance(wait_ms(DAY_MS))
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert states(world, item) == ["DELIVERED"]


def test_old_receipts_are_forgotten_and_those_never_placed_are_counted(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    sent(ledger, delivery())
    receipts.store([receipt(), receipt(provider_id="never")])
    receipts.match()
    assert receipts.waiting(10) == 1
    assert receipts.forget(DAY_MS) == (0, 0)
    world.advance(DAY_MS + 1)
    assert receipts.forget(DAY_MS) == (2, 1)
    assert receipts.waiting(10) == 0


def test_a_row_that_changed_meanwhile_is_left_and_the_receipt_kept(
    world: World, ledger: SqlLedger, receipts: Receipts, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = sent(ledger, delivery())
    receipts.store([receipt()])
    move = receipts._move

    def after_somebody_else(connection: Any, rows: Sequence[Any]) -> set[str]:
        return move(connection, [one._replace(version=one.version - 1) for one in rows])

    with monkeypatch.context() as patched:
        patched.setattr(receipts, "_move", after_somebody_else)
        assert applied(receipts) == []
    assert states(world, item) == ["SENT"]
    world.advance(1_000)
    assert applied(receipts) == [ApplyResult.APPLIED]


def test_receivers_of_sealed_rows_are_opened_and_no_receiver_is_kept_plain(url: str) -> None:
    world = World(url, payload_key="MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    ledger = world.open()
    receipts = open_receipts(ledger, world.settings, lambda: world.now)
    items = [
        sent(ledger, one) for one in deliveries(receivers=["+8613800000001", "+8613800000002"])
    ]
    receipts.store([receipt()])
    assert applied(receipts) == [ApplyResult.APPLIED]
    assert states(world, *items) == ["DELIVERED", "SENT"]
    assert "1380000" not in str(world.rows("SELECT receivers FROM receipts"))
    world.close()


def test_a_thousand_receipts_are_placed_in_full_batches(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    numbers = [f"+86139{n:08}" for n in range(1_000)]
    items = claimed(ledger, *deliveries(receivers=numbers))
    for item in items:
        item.account = ACCOUNT
    assert all(ledger.settle([Settlement(i, Event.ACCEPTED, provider_id="biz") for i in items]))
    receipts.store([receipt(provider_id="biz", receivers=(one,)) for one in numbers])
    first, second = receipts.match(), receipts.match()
    assert [len(first.verdicts), len(second.verdicts)] == [500, 500]
    assert first.more
    assert set(world.states().values()) == {"DELIVERED"}


def test_two_processes_at_once_place_every_receipt_once(
    world: World, ledger: SqlLedger, receipts: Receipts
) -> None:
    numbers = [f"+86137{n:08}" for n in range(2_000)]
    items = claimed(ledger, *deliveries(receivers=numbers[:1_000]))
    items += claimed(ledger, *deliveries(receivers=numbers[1_000:]))
    for item in items:
        item.account = ACCOUNT
    assert all(ledger.settle([Settlement(i, Event.ACCEPTED, provider_id="biz") for i in items]))
    for said in (ReceiptState.SENT, ReceiptState.DELIVERED):
        receipts.store([receipt(said, "biz", receivers=(one,)) for one in numbers])
    other = open_receipts(world.open(), world.settings, lambda: world.now)
    placed: list[ApplyResult | None] = []

    def work(mine: Receipts) -> None:
        while (done := mine.match()).verdicts or done.more:
            placed.extend(verdict.applied for verdict in done.verdicts)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (receipts, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.advance(DAY_MS)  # a row that the other one was writing is looked at again later
    work(receipts)
    assert set(world.states().values()) == {"DELIVERED"}
    assert Counter(placed) == {ApplyResult.APPLIED: 2_000, ApplyResult.REPEATED: 2_000}


def test_a_receiver_that_our_key_does_not_open_leaves_its_receipt_waiting(url: str) -> None:
    world = World(url, payload_key="MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    ledger = world.open()
    item = sent(ledger, delivery())
    plain = open_receipts(ledger, Settings(), lambda: world.now)
    plain.store([receipt()])
    assert plain.match().waiting == 1
    world.advance(DAY_MS)
    ours = open_receipts(ledger, world.settings, lambda: world.now)
    assert applied(ours) == [ApplyResult.APPLIED]
    assert states(world, item) == ["DELIVERED"]
    world.close()


def test_a_receipt_that_names_nothing_is_refused(receipts: Receipts) -> None:
    with pytest.raises(ValueError, match="must name"):
        receipts.store([receipt(provider_id="")])


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("said", list(ReceiptState))
def test_no_receipt_leads_where_the_state_machine_does_not(
    said: ReceiptState, state: State
) -> None:
    applied, then = decide(said, state)
    if applied is not ApplyResult.APPLIED:
        assert then is state
    else:
        assert state in (State.SENT, State.UNKNOWN)
        assert then.value == said.value
    in_doubt, then = decide(said, state, doubted=True)
    if state is State.RETRY:
        assert (in_doubt, then.value) == (ApplyResult.APPLIED, said.value)
    else:
        assert in_doubt is applied


@pytest.mark.stack
def test_every_row_is_found_by_an_index(postgres: World) -> None:
    ledger = postgres.open()
    names = {"ids": "{a,b}", "calls": "{c,d}"}
    with ledger.database.connection() as connection:
        lines = connection.execute("EXPLAIN " + PG_CANDIDATES, names).fetchall()
    plan = "\n".join(line for (line,) in lines)
    assert "Seq Scan on" not in plan, plan
    assert "provider_id_idx" in plan, plan
    assert "call_key_idx" in plan, plan


def _name_call(world: World, item: Delivery, call_key: str) -> None:
    """What claiming a coalesced call writes."""
    if world.is_postgres:
        world.run(
            "UPDATE deliveries SET call_key = %s WHERE delivery_key = %s", (call_key, item.key)
        )
    else:
        with world._opened[0].database.connection() as connection:
            connection.execute(
                "UPDATE deliveries SET call_key = ? WHERE delivery_key = ?", (call_key, item.key)
            )
