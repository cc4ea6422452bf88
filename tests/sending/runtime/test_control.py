"""Orders are obeyed within a look, and hold through every trouble."""

from __future__ import annotations

import threading

import pytest

from idempotency.fleet.controls import ControlOrders
from idempotency.ledger import LedgerUnavailable
from sending.runtime.control import ControlWatcher

NONE = ControlOrders({}, None)


class Bench:
    """A database of orders and a process that obeys them."""

    def __init__(self) -> None:
        self.orders = NONE
        self.fault: Exception | None = None
        self.obeyed: list[set[str]] = []
        self.held: list[set[str]] = []
        self.drains = 0
        self.time = 100.0
        self.changed = threading.Event()
        self.watch = ControlWatcher(
            self.ask,
            self.obey,
            self.drain,
            monotonic=lambda: self.time,
            look_s=0.001,
            hold=lambda accounts: self.held.append(set(accounts)),
        )

    def ask(self) -> ControlOrders:
        if self.fault is not None:
            raise self.fault
        return self.orders

    def obey(self, paused: frozenset[str]) -> None:
        self.obeyed.append(set(paused))
        self.changed.set()

    def drain(self) -> None:
        self.drains += 1


def test_each_change_is_obeyed_once() -> None:
    bench = Bench()
    bench.watch.look()
    bench.orders = ControlOrders({"sms.notice": None, "email.notice": 60_000})
    bench.watch.look()
    bench.watch.look()
    bench.orders = ControlOrders({"sms.notice": None})
    bench.watch.look()
    bench.orders = NONE
    bench.watch.look()
    assert bench.obeyed == [{"sms.notice", "email.notice"}, {"sms.notice"}, set()]
    assert bench.watch.paused == frozenset()


@pytest.mark.parametrize("fault", [LedgerUnavailable("gone"), RuntimeError("a bug")], ids=repr)
def test_a_database_that_is_away_leaves_the_orders_as_they_are(fault: Exception) -> None:
    bench = Bench()
    bench.orders = ControlOrders({"sms.notice": None})
    bench.watch.look()
    bench.fault = fault
    bench.time += 3_600
    bench.watch.look()
    assert bench.watch.paused == {"sms.notice"}
    bench.fault, bench.orders = None, NONE
    bench.watch.look()
    assert bench.obeyed == [{"sms.notice"}, set()]


def test_a_planned_end_needs_no_database() -> None:
    bench = Bench()
    bench.orders = ControlOrders({"sms.notice": 30_000, "email.notice": None})
    bench.watch.look()
    bench.fault = LedgerUnavailable("gone")
    bench.time += 29.9
    bench.watch.look()
    assert bench.watch.paused == {"sms.notice", "email.notice"}
    bench.time += 0.2
    bench.watch.look()
    assert bench.watch.paused == {"email.notice"}


def test_a_drain_is_ordered_once() -> None:
    bench = Bench()
    bench.orders = ControlOrders({}, "li: repairs")
    bench.watch.look()
    bench.watch.look()
    assert bench.drains == 1


def test_it_looks_until_it_is_stopped_and_obeys_nothing_after() -> None:
    bench = Bench()
    thread = threading.Thread(target=bench.watch.run)
    thread.start()
    bench.orders = ControlOrders({"sms.notice": None})
    assert bench.changed.wait(10)
    bench.watch.stop()
    thread.join(10)
    assert not thread.is_alive()
    bench.orders = NONE
    bench.watch.look()
    assert bench.obeyed == [{"sms.notice"}]


def test_paused_accounts_are_held_until_their_end_whatever_the_database_does() -> None:
    bench = Bench()
    bench.orders = ControlOrders({}, None, {"main": None, "spare": 30_000})
    bench.watch.look()
    bench.watch.look()
    bench.fault = LedgerUnavailable("gone")
    bench.time += 30.1
    bench.watch.look()
    bench.fault, bench.orders = None, NONE
    bench.watch.look()
    assert bench.held == [{"main", "spare"}, {"main"}, set()]
    assert bench.obeyed == []
