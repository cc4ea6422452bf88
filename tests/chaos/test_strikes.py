"""Whoever dies by an order of the driver's is known to, however late it obeys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.chaos.books import Hit, LifeBook
from tests.chaos.kinds import Kind
from tests.chaos.pack import Life
from tests.chaos.plan import Fault
from tests.chaos.points import Orders, Point
from tests.chaos.strikes import Strikes

FAULT = Fault(7, Kind.KILL_ANSWER, at=0.5, wait_s=0, victim=0.0, down_s=1.0, same_name=False)


class Place:
    """Strikes, and two workers of which the first is the victim."""

    def __init__(self, folder: Path) -> None:
        self.hits: list[Hit] = []
        self.stage = Mock(troubles=[], note=self.hits.append)
        self.victim, self.other = (self._life(folder, number) for number in range(2))
        self.workers: Any = Mock()
        self.workers.gone.return_value = []
        self.workers.choose.return_value = self.victim
        recoveries: Any = Mock()
        recoveries.gone.return_value = []
        self.strikes = Strikes(Mock(), Mock(), self.workers, recoveries, Mock(), Mock(), self.stage)
        assert self.strikes.do(FAULT)
        self.workers.choose.return_value = self.other

    def obey(self, *, dead: bool) -> None:
        """The victim comes to its point."""
        orders = self.victim.orders
        orders.path.rename(orders.path.with_suffix(".reached"))
        self.victim.process.running = not dead

    def find_gone(self) -> list[Life]:
        self.victim.process.running = False
        self.workers.gone.return_value = [self.victim]
        unexpected = self.strikes.look_after()
        self.workers.gone.return_value = []
        return unexpected

    def _life(self, folder: Path, number: int) -> Any:
        orders = Orders(folder / f"orders-{number}")
        book = LifeBook(number, f"w{number}", 0)
        return Mock(orders=orders, book=book, process=Mock(running=True), spec=Life)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_victim_that_dies_while_the_driver_looks_elsewhere_is_the_faults(place: Place) -> None:
    """It was there when the packs were looked through, and is not when its order is."""
    place.obey(dead=True)
    assert place.strikes.look_after() == []
    assert not place.other.orders.path.exists(), "nobody else is to die for the same fault"
    assert place.find_gone() == []
    assert [(hit.fault.number, hit.worker) for hit in place.hits] == [(7, "w0")]
    assert not place.strikes.busy


def test_a_victim_that_obeys_as_its_time_runs_out_is_the_faults(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.obey(dead=False)
    now = time.monotonic()
    monkeypatch.setattr("tests.chaos.strikes.time.monotonic", lambda: now + 3_600)
    assert place.strikes.look_after() == []
    assert place.stage.troubles == []
    assert place.find_gone() == []
    assert [hit.worker for hit in place.hits] == ["w0"]


def test_a_victim_that_another_fault_killed_is_replaced(place: Place) -> None:
    place.victim.process.running = False
    assert place.strikes.look_after() == []
    assert place.other.orders.path.read_text() == f"kill {Point.ANSWER}"


def test_a_process_that_dies_without_an_order_is_nobodys(place: Place) -> None:
    place.victim.orders.take_back()
    assert place.find_gone() == [place.victim]
