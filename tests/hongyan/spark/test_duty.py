"""One process at a time runs Spark jobs; one cycle after another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from hongyan.errors import NotDone
from hongyan.spark import duty as duties_of_spark
from hongyan.spark.duty import held_duty
from hongyan.spark.schedule import run_every
from idempotency.fleet.duties import Duties
from idempotency.ledger import LedgerUnavailable
from idempotency.lost.runs import DUTY, Runs
from idempotency.sql_ledger import clock_of
from tests.harness.databases import upgraded


@pytest.fixture
def database(sqlite_database: str) -> Iterator[Database]:
    upgraded(Settings(database=DatabaseSettings(url=sqlite_database)))
    made = Database(database_url(sqlite_database))
    yield made
    made.close()


def parts(database: Database) -> tuple[Duties, Runs]:
    clock = clock_of(database)
    return Duties(database, clock), Runs(database, clock)


def test_the_second_process_is_told_who_runs_the_jobs(database: Database) -> None:
    with (
        held_duty(*parts(database), "host-1-77") as duty,
        pytest.raises(NotDone, match="host-1-77 runs Spark jobs already"),
        held_duty(*parts(database), "host-2-88"),
    ):
        pytest.fail("two at once")
    duty.check()
    with held_duty(*parts(database), "host-2-88"):
        assert parts(database)[1].holder() == "host-2-88"


def test_a_process_that_lost_its_duty_writes_nothing_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties_of_spark, "_RENEW_S", 0.01)
    duties, runs = parts(database)
    with held_duty(duties, runs, "host-1-77") as duty:
        duties.drop(DUTY, "host-1-77")
        taken = threading.Event()
        while not taken.is_set():
            if duties.hold(DUTY, "host-2-88", 60_000):
                taken.set()
            else:
                duties.drop(DUTY, "host-1-77")  # it was quicker to renew
        deadline = monotonic() + 30
        while duty.until and monotonic() < deadline:
            sleep(0.01)
        with pytest.raises(NotDone, match="could not renew its duty"):
            duty.check()
    assert runs.holder() == "host-2-88"


class Cycles:
    """Counts; fails as it is told; ends the loop after some."""

    def __init__(self, most: int, stop: threading.Event) -> None:
        self.begun: list[float] = []
        self.vacuumed = 0
        self.now = 0.0
        self._most = most
        self._stop = stop

    def run(self, _jobs: object, _stop: object) -> list[Any]:
        self.begun.append(self.now)
        self.now += 700.0
        if len(self.begun) == self._most:
            self._stop.set()
        if len(self.begun) == 2:
            raise LedgerUnavailable("away")
        return []

    def vacuum(self) -> None:
        self.vacuumed += 1


def test_cycles_go_on_after_a_failure_until_the_stop() -> None:
    stop = threading.Event()
    cycles = Cycles(8, stop)
    run_every(cycles, ["ingest"], 600.0, stop, lambda: cycles.now)  # type: ignore[arg-type]
    assert len(cycles.begun) == 8
    assert cycles.begun == [700.0 * n for n in range(8)]  # a long one is followed at once
    assert cycles.vacuumed == 1
