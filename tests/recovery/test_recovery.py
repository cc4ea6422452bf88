"""A recovery on a real ledger with a real provider, in this process and as processes of its own."""

import signal
import threading
from typing import Any

import pytest

from backends.settings import Settings
from idempotency.bounds import MOST
from idempotency.ledger import LedgerUnavailable
from idempotency.sql_ledger import SqlLedger, open_ledger
from recovery.process import run_recovery
from recovery.scheduling.loop import Loop
from simulator import Faults
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, Ground, until

ASKED = Faults(method="GET", errors={"503": 1.0})


def run(ground: Ground, **wanted: int) -> None:
    """One recovery under the built-in loop until the rows stand as wanted."""
    with ground.recovery() as opened:
        recovery = opened.recovery
        recovery.start()
        loop = Loop(recovery, poll_s=0.02, stop=recovery.stopping)
        thread = recovery.thread_group.start("loop", loop.run)
        ground.await_states(**wanted)
        recovery.stopping.set()
        thread.join(10)
        assert recovery.thread_group.failure is None


def test_what_was_not_sent_is_sent_again_within_its_ttl(ground: MakeGround) -> None:
    one = ground()
    items = one.waiting(20)
    run(one, SENT=20)
    assert one.accepted() == {item.key: 1 for item in items}
    assert {r.attempt for r in one.provider.records()} == {2}


def test_what_is_past_its_ttl_is_not_sent(ground: MakeGround) -> None:
    one = ground()
    one.waiting(3, ttl_ms=1)
    run(one, EXPIRED=3)
    assert one.accepted() == {}


def test_refused_again_and_again_it_is_parked_after_its_last_attempt(ground: MakeGround) -> None:
    one = ground(retry={"attempts": 3, "base_ms": 10, "cap_ms": 20})
    one.provider.control(rules=[Faults(errors={"408": 1.0})])
    (item,) = one.waiting()
    run(one, PARKED=1)
    assert one.state(item) == ("PARKED", "attempts_spent:http_408")
    assert [r.attempt for r in one.provider.records()] == [2, 3]


@pytest.mark.soak(cases="sqlite")
def test_refusals_for_pace_spend_no_attempt_and_end_with_the_patience(ground: MakeGround) -> None:
    """Called more often than it has attempts, each call under a number and a name of its own."""
    retry = {"attempts": 2, "base_ms": 10, "cap_ms": 20, "patience": 0.08}
    one = ground(retry=retry)
    one.provider.control(rules=[Faults(errors={"429": 1.0})])
    (item,) = one.waiting()
    run(one, PARKED=1)
    assert one.state(item) == ("PARKED", "paced:http_429")
    attempts = [r.attempt for r in one.provider.records()]
    assert attempts == list(range(2, 2 + len(attempts)))
    assert len(attempts) > 2


@pytest.mark.soak(cases="sqlite")
def test_what_was_refused_for_pace_is_sent_once_the_provider_takes_it(ground: MakeGround) -> None:
    one = ground(retry={"attempts": 2, "base_ms": 10, "cap_ms": 20})
    one.provider.control(rules=[Faults(limit=1, limit_s=1.0)])
    items = one.waiting(6)
    run(one, SENT=6)
    assert one.accepted() == {item.key: 1 for item in items}


def test_what_the_provider_has_is_settled_by_its_word(ground: MakeGround) -> None:
    """Each was accepted, and its answer never came: the connection was reset."""
    one = ground(guarantee="at_most_once")
    one.provider.control(rules=[Faults(reset=1.0)])
    items = one.waiting(5)
    run(one, SENT=5)
    assert one.accepted() == {item.key: 1 for item in items}


def test_what_the_provider_has_not_is_sent_even_at_most_once(ground: MakeGround) -> None:
    one = ground(guarantee="at_most_once")
    items = one.doubted(5)
    run(one, SENT=5)
    assert one.accepted() == {item.key: 1 for item in items}


def test_in_doubt_without_an_answer_at_most_once_is_parked(ground: MakeGround) -> None:
    one = ground(guarantee="at_most_once")
    one.provider.control(rules=[ASKED])
    (item,) = one.long_doubted()
    run(one, PARKED=1)
    assert one.state(item) == ("PARKED", "unproven")
    assert one.accepted() == {}


def test_in_doubt_without_an_answer_at_least_once_is_resent_and_counted(
    ground: MakeGround,
) -> None:
    one = ground()
    one.provider.control(rules=[ASKED])
    (item,) = one.long_doubted()
    with one.recovery() as opened:
        opened.recovery.start()
        loop = Loop(opened.recovery, poll_s=0.02, stop=opened.recovery.stopping)
        opened.recovery.thread_group.start("loop", loop.run)
        one.await_states(SENT=1)
        doubles = "hongyan_recovery_possible_duplicates_total"
        assert opened.metrics.registry.get_sample_value(doubles, {"lane": LANE}) == 1
    assert one.accepted() == {item.key: 1}


def test_a_line_goes_in_order_behind_its_failed_head(ground: MakeGround) -> None:
    one = ground(ordering="key")
    (head,) = one.waiting(ordering_key="k")
    behind = []
    for _ in range(4):
        behind += one.waiting(ordering_key="k")
    run(one, SENT=5)
    order = [r.key for r in one.provider.records() if r.accepted]
    assert order == [item.key for item in (head, *behind)]


@pytest.mark.soak(cases="sqlite")
def test_two_recoveries_at_once_send_each_once(ground: MakeGround) -> None:
    one = ground()
    items = one.waiting(150)
    for name in ("r1", "r2"):
        one.process(name)
    one.await_states(SENT=150)
    assert one.accepted() == {item.key: 1 for item in items}


@pytest.mark.soak(cases="sqlite")
def test_killed_mid_resend_nothing_is_lost_and_nothing_doubled(ground: MakeGround) -> None:
    """The provider accepts and keeps its answer back; the recovery dies waiting for it."""
    one = ground()
    one.provider.control(rules=[Faults(hang=1.0)])
    items = one.waiting(6)
    first = one.process("r1")
    until(lambda: len(one.accepted()) >= 4)
    first.kill()
    first.wait()
    one.provider.control(rules=[])
    assert one.states()["IN_FLIGHT"] >= 4
    one.process("r2")
    one.await_states(SENT=6)
    assert one.accepted() == {item.key: 1 for item in items}


def test_sigterm_ends_what_has_begun_and_gives_back_the_rest(ground: MakeGround) -> None:
    one = ground(threads=8)
    one.provider.control(rules=[Faults(latency_ms="500")])
    one.waiting(40)
    process = one.process("r1")
    until(lambda: any(True for _ in one.provider.records()))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0, one.log("r1")
    states = one.states()
    assert states["IN_FLIGHT"] == states["UNKNOWN"] == 0
    assert states["SENT"] + states["RETRY"] == 40
    assert len(one.accepted()) == states["SENT"]
    assert states["RETRY"] > 0
    one.provider.control(rules=[])
    one.process("r2")
    one.await_states(SENT=40)
    assert max(one.accepted().values()) == 1


@pytest.mark.parametrize("away", ["register", "identity"])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_stop_ends_a_start_whose_database_went_away(
    ground: MakeGround, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """It had answered once: the wait that follows is one of the start, too."""
    one, waits = ground(), threading.Event()

    def fails(*_: Any) -> None:
        waits.set()
        raise LedgerUnavailable("away")

    def opened(settings: Settings) -> SqlLedger:
        ledger = open_ledger(settings)
        monkeypatch.setattr(ledger, away, fails)
        return ledger

    monkeypatch.setattr("recovery.wiring.open_ledger", opened)
    codes: list[int] = []
    stop = threading.Event()

    def start() -> None:
        codes.append(run_recovery(one.settings, stop, [LANE], embedded=True))

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    assert waits.wait(10)
    stop.set()
    thread.join(10)
    assert codes == [0]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_second_sigterm_changes_nothing(ground: MakeGround) -> None:
    one = ground()
    one.provider.control(rules=[Faults(latency_ms="800")])
    one.waiting(4)
    process = one.process("r1")
    until(lambda: any(True for _ in one.provider.records()))
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0, one.log("r1")
    assert one.states()["UNKNOWN"] == 0


@pytest.mark.parametrize("job", ["resend", "resolve"])
def test_a_row_that_cannot_be_counted_on_stops_nobody_and_is_an_alert(
    ground: MakeGround, job: str
) -> None:
    one = ground()
    bad, good = one.waiting(2) if job == "resend" else one.doubted(2)
    with one.ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE deliveries SET version = {MOST} WHERE delivery_key = '{bad.key}'"
        )
    with one.recovery() as opened:
        opened.recovery.start()
        run = getattr(opened.recovery, job)
        until(lambda: (run(LANE), one.state(bad)[0] == "PARKED")[1])
        until(lambda: (run(LANE), one.state(good)[0] != "UNKNOWN")[1])
        parked = opened.metrics.registry.get_sample_value(
            "hongyan_alerts_total", {"rule": "parked", "lane": LANE}
        )
    assert one.state(bad) == ("PARKED", "row_unusable")
    assert one.state(good)[0] in ("SENT", "RETRY")
    assert parked == 1
