"""Pauses of accounts, in the fleet or in one process, on each of the ledger's databases."""

from __future__ import annotations

import threading

from idempotency.fleet.controls import REPLACED
from tests.idempotency.making import World


def test_a_pause_of_the_fleet_reaches_every_process_and_one_of_a_process_that_one(
    world: World,
) -> None:
    ledger = world.open()
    pauses, controls = ledger.account_pauses(), ledger.controls()
    assert controls.orders("w1", 0).accounts == {}
    pauses.pause("main", "", None, author="li", reason="bad route")
    pauses.pause("spare", "w1", 60_000, author="li", reason="its network")
    assert controls.orders("w1", 0).accounts == {"main": None, "spare": 60_000}
    assert controls.orders("w2", 0).accounts == {"main": None}
    ended = pauses.resume("main", "", author="lin", reason="mended")
    assert ended is not None
    assert (ended.author, ended.ended_by, ended.ended_reason) == ("li", "lin", "mended")
    assert controls.orders("w2", 0).accounts == {}
    assert [(one.account, one.worker) for one in pauses.pauses()] == [("spare", "w1")]
    assert [one.account for one in pauses.history()] == ["spare", "main"]


def test_a_pause_ends_by_itself_by_the_databases_clock(world: World) -> None:
    ledger = world.open()
    pauses = ledger.account_pauses()
    pauses.pause("main", "", 30_000, author="li", reason="repairs")
    world.advance(29_999)
    assert ledger.controls().orders("w1", 0).accounts == {"main": 1}
    world.advance(1)
    assert ledger.controls().orders("w1", 0).accounts == {}
    assert pauses.pauses() == []
    assert pauses.resume("main", "", author="li", reason="") is None, "it is over already"
    (one,) = pauses.history()
    assert (one.ended_by, one.over_at(world.now)) == (None, world.now)


def test_the_later_end_of_two_pauses_counts(world: World) -> None:
    ledger = world.open()
    pauses = ledger.account_pauses()
    pauses.pause("main", "", 1_000, author="li", reason="short")
    pauses.pause("main", "w1", 9_000, author="li", reason="long")
    assert ledger.controls().orders("w1", 0).accounts == {"main": 9_000}
    pauses.pause("main", "", None, author="li", reason="until somebody ends it")
    assert ledger.controls().orders("w1", 0).accounts == {"main": None}


def test_a_pause_over_another_replaces_it_and_both_are_kept(world: World) -> None:
    pauses = world.open().account_pauses()
    assert pauses.pause("main", "", None, author="li", reason="first") is None
    replaced = pauses.pause("main", "", 1_000, author="lin", reason="second")
    assert replaced is not None
    assert (replaced.reason, replaced.ended_by, replaced.ended_reason) == ("first", "lin", REPLACED)
    assert [one.reason for one in pauses.pauses()] == ["second"]
    assert [one.reason for one in pauses.history()] == ["second", "first"]


def test_many_that_pause_at_once_leave_one_pause(world: World) -> None:
    ledgers = [world.open() for _ in range(4)]
    errors: list[BaseException] = []

    def pause(number: int) -> None:
        try:
            ledgers[number].account_pauses().pause(
                "main", "", None, author=f"a{number}", reason="at once"
            )
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=pause, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(ledgers[0].account_pauses().pauses()) == 1
    assert len(ledgers[0].account_pauses().history()) == 4
