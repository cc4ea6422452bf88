"""The right to send: what a lane asks right before each first byte."""

from __future__ import annotations

import threading
from math import inf
from queue import SimpleQueue

from idempotency.ledger import Lease, WorkerInfo
from idempotency.ledger import Ledger as LedgerContract
from sending.runtime.clock import Clock
from sending.runtime.lease import WorkerLease

LEASE_S = 10.0


class Ledger:
    """Only the heartbeat rows; `dead` is what a sweep by a peer does."""

    def __init__(self) -> None:
        self.epoch = 0
        self.dead = False

    def register(self, worker: WorkerInfo) -> Lease:
        self.epoch, self.dead = self.epoch + 1, False
        return Lease(worker.id, self.epoch, 0)

    def heartbeat(self, lease: Lease, _state: str, _snapshot: str = "") -> Lease | None:
        return None if self.dead else lease

    def sweep(self) -> list[tuple[str, int]]:
        return []


class Bench:
    """A heart whose time is moved by hand."""

    def __init__(self) -> None:
        self.time = 100.0
        self.ledger = Ledger()
        info = WorkerInfo("w", "host", 1, [], 1, int(LEASE_S * 1_000))
        clock = Clock(lambda: self.time, lambda: self.time)
        contract: LedgerContract = self.ledger  # type: ignore[assignment]  # as much as is asked
        self.lease = WorkerLease(contract, info, clock=clock, interval_s=1.0)
        self.lease.register()

    def may_send(self, term: int) -> bool:
        return self.lease.wait_valid(term, until=lambda: True)


def test_a_send_may_begin_while_the_lease_holds() -> None:
    bench = Bench()
    assert bench.may_send(bench.lease.term)


def test_no_send_begins_in_the_last_part_of_a_lease() -> None:
    bench = Bench()
    bench.time += LEASE_S * 0.85
    assert not bench.may_send(bench.lease.term)


def test_a_heartbeat_after_an_outage_gives_the_right_back() -> None:
    bench = Bench()
    term = bench.lease.term
    bench.time += LEASE_S * 0.95
    bench.lease.beat()
    assert bench.may_send(term)


def test_what_was_claimed_before_a_lapse_may_not_be_sent_after_it() -> None:
    bench = Bench()
    old = bench.lease.term
    bench.ledger.dead = True
    bench.lease.beat()
    assert bench.lease.valid
    assert not bench.may_send(old)
    assert bench.may_send(bench.lease.term)


def test_the_end_of_a_lease_counts_from_before_it_was_asked_for() -> None:
    bench = Bench()
    assert bench.lease.ends_at(bench.lease.term) == 100.0 + LEASE_S


def test_the_end_of_an_earlier_lease_is_past_whatever_holds_now() -> None:
    bench = Bench()
    old = bench.lease.term
    bench.ledger.dead = True
    bench.lease.beat()
    assert bench.lease.ends_at(old) == -inf


def test_a_beat_tells_whether_the_process_sends_and_hurry_tells_it_at_once() -> None:
    told, idle = SimpleQueue[str](), [True]

    class Listening(Ledger):
        def heartbeat(self, lease: Lease, _state: str, _snapshot: str = "") -> Lease | None:
            told.put(_state)
            return lease

    contract: LedgerContract = Listening()  # type: ignore[assignment]
    info = WorkerInfo("r", "host", 1, [], 1, int(LEASE_S * 1_000))
    lease = WorkerLease(contract, info, clock=Clock(), interval_s=3_600.0, idle=lambda: idle[0])
    lease.register()
    thread = threading.Thread(target=lease.run)
    thread.start()
    try:
        lease.hurry()
        assert told.get(timeout=30) == "IDLE"
        idle[0] = False
        lease.hurry()
        assert told.get(timeout=30) == "RUNNING"
        lease.draining()
        lease.hurry()
        assert told.get(timeout=30) == "DRAINING"
    finally:
        lease.stop()
        thread.join(30)
    assert not thread.is_alive()
