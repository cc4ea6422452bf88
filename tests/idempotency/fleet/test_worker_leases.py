"""When a name may be taken over before its lease has run out."""

import os
import socket
import subprocess

import pytest

from idempotency.ledger import WorkerNameTaken
from idempotency.sql_ledger import SqlLedger
from message.states import State
from tests.idempotency.making import LEASE_MS, World, claimed, delivery, worker

HERE = socket.gethostname()


@pytest.fixture
def gone() -> int:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


def test_a_process_of_this_host_that_is_gone_is_replaced_at_once(
    world: World, ledger: SqlLedger, gone: int
) -> None:
    ledger.register(worker(host=HERE, pid=gone))
    (left,) = claimed(ledger, delivery())
    assert world.open().register(worker(host=HERE, pid=os.getpid())).epoch == 2
    assert world.states() == {left.key: State.UNKNOWN}


def test_a_process_of_this_host_that_lives_keeps_its_name(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker(host=HERE, pid=os.getppid()))
    with pytest.raises(WorkerNameTaken):
        world.open().register(worker(host=HERE, pid=os.getpid()))


def test_a_process_registers_anew_under_its_own_name(ledger: SqlLedger) -> None:
    first = ledger.register(worker(host=HERE, pid=os.getpid()))
    second = ledger.register(worker(host=HERE, pid=os.getpid()))
    assert second.epoch == first.epoch + 1
    assert ledger.heartbeat(first) is None
    assert ledger.heartbeat(second) is not None


def test_another_hosts_pid_says_nothing_here(world: World, ledger: SqlLedger, gone: int) -> None:
    ledger.register(worker(host="far", pid=gone))
    with pytest.raises(WorkerNameTaken):
        world.open().register(worker(host=HERE, pid=os.getpid()))


def test_who_lives_is_told_with_its_lanes(world: World, ledger: SqlLedger) -> None:
    assert ledger.live_lanes() == []
    ledger.register(worker("one"))
    leaving = ledger.register(worker("two"))
    assert ledger.live_lanes() == [frozenset(worker().lanes)] * 2
    ledger.retire(leaving)
    assert len(ledger.live_lanes()) == 1
    world.advance(LEASE_MS)
    assert len(ledger.live_lanes()) == 1
    world.advance(1)
    assert ledger.live_lanes() == []


def test_who_sends_nothing_has_no_share_but_lives(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker("one"))
    other = world.open()
    idle = other.register(worker("two"))
    assert len(ledger.sending_lanes()) == 2
    other.heartbeat(idle, "IDLE")
    assert len(ledger.live_lanes()) == 2
    assert len(ledger.sending_lanes()) == 1
    assert len(other.sending_lanes()) == 2, "it counts itself: it is about to send"
    other.heartbeat(idle, "RUNNING")
    assert len(ledger.sending_lanes()) == 2
