"""A row whose counters are at their bound: it is set aside, and nobody else's row waits for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from idempotency.bounds import MOST
from idempotency.ledger import Settlement
from idempotency.recovery.contract import ROW_UNUSABLE, DueQuery, Ended
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.ids import new_token
from message.states import Event, State
from tests.harness.operator_moves import operator_retry
from tests.idempotency.making import World, adopt, claimed, claims, delivery, settle, worker

ASK = DueQuery(lane="sms.notice", attempts=5)
COLUMNS = pytest.mark.parametrize("column", ["version", "attempt"])


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    return world.open()


def put_at_bound(ledger: SqlLedger, item: Delivery, column: str = "version") -> None:
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE deliveries SET {column} = {MOST} WHERE delivery_key = '{item.key}'"
        )


def two(ledger: SqlLedger, event: Event, column: str = "version") -> list[Delivery]:
    """A row at its bound, and after it a good one."""
    items = claimed(ledger, delivery(), delivery())
    for item in items:
        assert settle(ledger, item, event, reason="http_429")
    put_at_bound(ledger, items[0], column)
    return items


def states(world: World, *items: Delivery) -> list[str]:
    found = world.states()
    return [found[item.key] for item in items]


@COLUMNS
def test_a_row_that_cannot_be_counted_on_is_parked_and_the_batch_goes_on(
    world: World, ledger: SqlLedger, column: str
) -> None:
    bad, good = two(ledger, Event.NOT_SENT, column)
    ledger.register(worker("r1"))
    taking = ledger.recovering().take(ASK, "r1", new_token())
    assert [taken.delivery.key for taken in taking.taken] == [good.key]
    assert [(e.key, e.state, e.reason) for e in taking.ended] == [
        (bad.key, State.PARKED, ROW_UNUSABLE)
    ]
    assert states(world, bad, good) == ["PARKED", "IN_FLIGHT"]


@COLUMNS
def test_a_doubt_that_cannot_be_counted_on_is_parked_and_told_and_others_are_asked_about(
    world: World, ledger: SqlLedger, column: str
) -> None:
    bad, good = two(ledger, Event.UNKNOWN, column)
    ended: list[Ended] = []
    doubts = ledger.recovering().doubts("sms.notice", 1_000, ended=ended)
    assert [doubt.delivery.key for doubt in doubts] == [good.key]
    assert [(e.key, e.state, e.reason) for e in ended] == [(bad.key, State.PARKED, ROW_UNUSABLE)]
    assert states(world, bad, good) == ["PARKED", "UNKNOWN"]


def test_a_persons_retry_of_such_a_row_fails_nothing_and_ends_where_it_was(
    world: World, ledger: SqlLedger
) -> None:
    bad, good = two(ledger, Event.NOT_SENT)
    ledger.register(worker("r1"))
    recovering = ledger.recovering()
    recovering.take(ASK, "r1", new_token())
    day, version, state = known(recovering.version_of(bad.key))
    assert recovering.move([operator_retry(bad.key, day, version, state)]) == [True]
    taking = recovering.take(ASK, "r1", new_token())
    assert [e.key for e in taking.ended] == [bad.key]
    assert states(world, bad, good) == ["PARKED", "IN_FLIGHT"]


def test_a_sweep_puts_it_in_doubt_with_all_others(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker())
    bad, good = claimed(ledger, delivery(), delivery())
    put_at_bound(ledger, bad)
    world.advance(10_000)
    assert ledger.sweep() == [("w1", 2)]
    assert states(world, bad, good) == ["UNKNOWN", "UNKNOWN"]


@COLUMNS
def test_a_claim_leaves_what_was_given_back_at_its_bound_and_takes_the_rest(
    world: World, ledger: SqlLedger, column: str
) -> None:
    items = claimed(ledger, delivery(), delivery())
    assert ledger.settle([Settlement(item, Event.GIVEN_BACK) for item in items]) == [True, True]
    put_at_bound(ledger, items[0], column)
    made = claims(items)
    answers = ledger.claim(made, "w2")
    assert [answer.won for answer in answers] == [False, True]
    adopt(made, answers)
    assert states(world, *items) == ["RETRY", "IN_FLIGHT"]
    world.advance(61_000)
    ledger.register(worker("r1"))
    asks = [ASK, msgspec.structs.replace(ASK, first=True)]
    ended = [e for a in asks for e in ledger.recovering().take(a, "r1", new_token()).ended]
    assert [(e.key, e.reason) for e in ended] == [(items[0].key, ROW_UNUSABLE)]


def known(found: Any) -> Any:
    assert found is not None
    return found
