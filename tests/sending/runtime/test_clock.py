"""The database's time between heartbeats, however long these take."""

from __future__ import annotations

import threading

import psycopg
import pytest

from backends.settings import DatabaseSettings, Settings
from idempotency.ledger import WorkerInfo
from idempotency.sql_ledger import open_ledger
from sending.runtime.clock import Clock
from sending.runtime.lease import WorkerLease


class Hands:
    """A monotonic clock moved by hand, and a database whose clock is 900 s ahead of it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.clock = Clock(lambda: self.now, lambda: 5.0)

    def ask(self, before_s: float = 0.0, after_s: float = 0.0, jump_s: float = 0.0) -> None:
        """Calibrates by a query that waits before and after the database reads its clock."""
        asked_at = self.now
        self.now += before_s
        database_ms = round((self.now + 900 + jump_s) * 1_000)
        self.now += after_s
        self.clock.calibrate(database_ms, asked_at)

    @property
    def error_s(self) -> float:
        return self.clock.now_ms() / 1_000 - (self.now + 900)


def test_the_first_answer_counts_from_the_middle_of_its_query() -> None:
    hands = Hands()
    hands.ask(before_s=1.0, after_s=3.0)
    assert hands.error_s == pytest.approx(-1.0, abs=0.01)


@pytest.mark.parametrize(("before_s", "after_s"), [(8.0, 0.0), (0.0, 8.0)])
def test_a_slow_query_does_not_move_the_time(before_s: float, after_s: float) -> None:
    hands = Hands()
    hands.ask()
    hands.now += 60
    hands.ask(before_s, after_s)
    assert hands.error_s == pytest.approx(0.0, abs=0.01)


def test_a_quick_query_mends_the_error_of_a_slow_first_one() -> None:
    hands = Hands()
    hands.ask(after_s=8.0)
    hands.ask(after_s=0.002)
    assert hands.error_s == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("jump_s", [-30.0, 30.0])
def test_a_jump_of_the_databases_clock_is_followed(jump_s: float) -> None:
    hands = Hands()
    hands.ask()
    hands.ask(after_s=0.002, jump_s=jump_s)
    assert hands.error_s == pytest.approx(jump_s, abs=0.01)


@pytest.mark.stack
def test_a_heartbeat_that_waits_for_its_row_does_not_turn_the_clock_back(
    ledger_database: str,
) -> None:
    ledger = open_ledger(Settings(database=DatabaseSettings(url=ledger_database)))
    clock = Clock()
    info = WorkerInfo(id="w", host="h", pid=1, lanes=[], threads=1, lease_ms=30_000)
    lease = WorkerLease(ledger, info, clock=clock, interval_s=5.0)
    lease.register()
    lease.beat()
    with psycopg.connect(ledger_database.replace("+psycopg", "")) as other:
        other.execute("SELECT * FROM workers FOR UPDATE")
        release = threading.Timer(2.0, other.rollback)
        release.start()
        lease.beat()
        release.join()
    assert abs(clock.now_ms() - ledger.now_ms()) < 500
    ledger.close()
