"""The harness itself: an oracle that never objects proves nothing."""

from collections.abc import Callable

import pytest

from tests.harness import Fleet, TimedOut, await_, notifications

MakeFleet = Callable[..., Fleet]


def test_the_oracle_objects_to_what_never_entered_the_ledger(
    fleet: MakeFleet,
) -> None:
    unserved = fleet()
    unserved.send(notifications(1))
    with pytest.raises(AssertionError, match="never entered the ledger"):
        unserved.verify()


def test_the_oracle_objects_to_an_offset_that_passed_without_an_owner(
    fleet: MakeFleet,
) -> None:
    cheated = fleet()
    (record,) = cheated.send(notifications(1))
    cheated.wire.commit_as_foreigner(record.place, record.offset + 1)
    with pytest.raises(AssertionError, match="the ledger does not own it"):
        cheated.verify(all_read=False)


def test_the_oracle_objects_to_a_row_that_says_sent_and_was_not(
    fleet: MakeFleet,
) -> None:
    lying = fleet()
    lying.worker().wait_ready()
    lying.slow(0, errors={"400": 1.0})
    lying.send(notifications(1))
    lying.await_states(REJECTED=1)
    lying.verify()
    lying.books.query("UPDATE deliveries SET state = 'SENT', reason = NULL")
    with pytest.raises(AssertionError, match="the provider never accepted it"):
        lying.verify()


def test_the_oracle_objects_to_a_double(fleet: MakeFleet) -> None:
    doubled = fleet(settings={"redis": {"url": ""}})
    doubled.worker().wait_ready()
    (record,) = doubled.send(notifications(1))
    doubled.await_settled()
    doubled.books.query("DELETE FROM deliveries")
    doubled.books.query("DELETE FROM delivery_keys")
    doubled.wire.send([record.notification] if record.notification else [])
    await_(lambda: doubled.accepted() == 2, what="a second acceptance")
    doubled.await_settled()
    with pytest.raises(AssertionError, match="accepted 2 times"):
        doubled.verify()


def test_a_condition_that_never_holds_names_itself() -> None:
    with pytest.raises(TimedOut, match="pigs fly; at last: False"):
        await_(lambda: False, timeout=0.01, what="pigs fly")
