"""What recovery will need of a call is in the ledger before the call is made, on every database."""

import pytest

from idempotency.sql_ledger import SqlLedger
from message.states import Event
from tests.idempotency.making import NOON, World, claimed, claims, delivery, settle

COLUMNS = "SELECT account, call_key, call_digest, called_at FROM deliveries"


def test_a_claim_puts_account_call_key_and_digest_on_record(
    world: World, ledger: SqlLedger
) -> None:
    item = delivery()
    item.account, item.call_key, item.call_digest = "main", "c" * 32, "d" * 32
    ledger.claim(claims([item]), "w1")
    assert world.rows(COLUMNS) == [("main", "c" * 32, "d" * 32, NOON)]


def test_what_shall_not_be_sent_was_not_called(world: World, ledger: SqlLedger) -> None:
    ledger.claim(claims([delivery()], Event.TTL_AT_INTAKE), "w1")
    assert world.rows(COLUMNS) == [(None, None, None, None)]


def test_a_call_in_doubt_keeps_the_time_its_dedup_window_counts_from(
    world: World, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery())
    world.advance(60_000)
    assert settle(ledger, item, Event.UNKNOWN)
    assert world.rows("SELECT called_at FROM deliveries") == [(NOON,)]


@pytest.mark.parametrize("event", [Event.NOT_SENT, Event.REJECTED, Event.BUDGET_SPENT])
def test_a_definite_non_send_closes_the_question(
    world: World, ledger: SqlLedger, event: Event
) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, event)
    assert world.rows("SELECT called_at FROM deliveries") == [(None,)]


def test_who_takes_over_what_was_given_back_puts_its_own_call_on_record(
    world: World, ledger: SqlLedger
) -> None:
    item = delivery()
    item.account = "first"
    (mine,) = claimed(ledger, item)
    assert settle(ledger, mine, Event.GIVEN_BACK)
    world.advance(1_000)
    again = delivery(id=item.notification.id)
    assert again.key == item.key
    again.account, again.call_key = "second", "c" * 32
    (answer,) = ledger.claim(claims([again]), "w2")
    assert answer.won
    assert world.rows(COLUMNS) == [("second", "c" * 32, None, NOON + 1_000)]


def test_another_account_is_on_record_before_it_is_called_and_counts_as_an_attempt(
    world: World, ledger: SqlLedger
) -> None:
    mine = claimed(ledger, delivery(), delivery())
    world.advance(1_000)
    for item in mine:
        item.account, item.call_key = "second", mine[0].key
    assert ledger.reroute(mine) == [True, True]
    assert [item.attempt for item in mine] == [2, 2]
    rows = world.rows("SELECT account, call_key, called_at, attempt FROM deliveries")
    assert rows == [("second", mine[0].key, NOON + 1_000, 2)] * 2


def test_a_call_on_record_that_was_not_made_is_taken_back_by_the_settlement(
    world: World, ledger: SqlLedger
) -> None:
    mine = claimed(ledger, delivery(), delivery())
    for item in mine:
        item.account = "second"
    assert ledger.reroute(mine) == [True, True]
    for item in mine:
        item.attempt, item.unmade = 1, 1
    assert settle(ledger, mine[0], Event.NOT_SENT)
    assert ledger.reroute(mine) == [False, True]
    assert [item.attempt for item in mine] == [1, 2], "the second was called after all"
    assert settle(ledger, mine[1], Event.GIVEN_BACK)
    assert world.rows("SELECT attempt FROM deliveries") == [(1,), (1,)]


def test_whose_token_is_stale_is_not_called_through_another_account(
    world: World, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.UNKNOWN)
    item.account = "second"
    assert ledger.reroute([item]) == [False]
    assert world.rows("SELECT account, attempt FROM deliveries") == [(None, 1)]
