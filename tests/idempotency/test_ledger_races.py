"""Several workers at one ledger at the same time: threads, and processes that share nothing else."""

import multiprocessing
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from backends.settings import DatabaseSettings, Settings
from idempotency.ledger import LedgerUnavailable, Settlement
from idempotency.sql_ledger import SqlLedger, open_ledger, upgrade
from message.delivery import Delivery
from message.states import Event, State
from tests.idempotency.making import (
    LEASE_MS,
    World,
    claimed,
    claims,
    delivery,
    settle,
    worker,
)

THREADS = 4


def at_once(calls: list[Callable[[], object]]) -> None:
    """Run all of them, each in its thread, beginning together; raises what any of them raised."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        gate.wait(10)
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(run, call) for call in calls]:
            done.result()


def persistently(call: Callable[[], list[str]]) -> list[str]:
    while True:
        try:
            return call()
        except LedgerUnavailable:
            continue


def claim_all(ledger: SqlLedger, items: list[Delivery], owner: str, ordered: bool) -> list[str]:
    """The keys won for sending, claimed in batches of a shuffled order."""
    items = random.sample(items, len(items))
    won: list[str] = []
    for start in range(0, len(items), 20):
        made = claims(items[start : start + 20])
        answers = ledger.claim(made, owner, ordered=ordered)
        won += [
            c.delivery.key
            for c, a in zip(made, answers, strict=True)
            if a.won and a.state is State.IN_FLIGHT
        ]
    return won


def test_of_threads_that_claim_the_same_keys_each_key_has_one_winner(world: World) -> None:
    items = [delivery() for _ in range(100)]
    won: list[str] = []

    def run(ledger: SqlLedger, owner: str) -> None:
        won.extend(claim_all(ledger, items, owner, ordered=False))

    at_once([partial(run, world.open(), f"w{n}") for n in range(THREADS)])
    assert Counter(won) == dict.fromkeys((item.key for item in items), 1)
    assert len(world.states()) == len(items)


def claim_in_process(url: str, items: list[Delivery], owner: str) -> list[str]:
    ledger = open_ledger(Settings(database=DatabaseSettings(url=url)))
    try:
        return claim_all(ledger, items, owner, ordered=False)
    finally:
        ledger.close()


def test_of_processes_that_claim_the_same_keys_each_key_has_one_winner(url: str) -> None:
    upgrade(Settings(database=DatabaseSettings(url=url)))
    items = [delivery() for _ in range(200)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [pool.apply_async(claim_in_process, (url, items, f"w{n}")) for n in range(2)]
        won = [key for job in jobs for key in job.get(60)]
    assert Counter(won) == dict.fromkeys((item.key for item in items), 1)


def test_of_two_that_claim_in_one_line_at_once_one_is_sent(world: World) -> None:
    ledgers = [world.open() for _ in range(THREADS)]
    for _round in range(15):
        line = [delivery(ordering_key=f"k{_round}") for _ in ledgers]
        won: list[str] = []

        def run(ledger: SqlLedger, items: list[Delivery], won: list[str] = won) -> None:
            won.extend(claim_all(ledger, items, "w1", ordered=True))

        at_once([partial(run, led, [d]) for led, d in zip(ledgers, line, strict=True)])
        assert len(won) == 1


def test_what_was_given_back_is_taken_over_by_one(world: World) -> None:
    ledgers = [world.open() for _ in range(THREADS)]
    items = claimed(ledgers[0], *[delivery() for _ in range(20)])
    ledgers[0].settle([Settlement(item, Event.GIVEN_BACK) for item in items])
    won: list[str] = []

    def run(ledger: SqlLedger, owner: str) -> None:
        won.extend(persistently(lambda: claim_all(ledger, items, owner, ordered=False)))

    at_once([partial(run, led, f"w{n}") for n, led in enumerate(ledgers)])
    assert Counter(won) == dict.fromkeys((item.key for item in items), 1)


def test_a_sweep_and_a_late_outcome_never_both_count(world: World) -> None:
    ledger, other = world.open(), world.open()
    for _round in range(10):
        ledger.register(worker())
        items = claimed(ledger, *[delivery() for _ in range(10)])
        world.advance(LEASE_MS + 1)
        told: dict[str, bool] = {}
        swept: list[tuple[str, int]] = []

        def late(told: dict[str, bool] = told, items: list[Delivery] = items) -> None:
            for item in items:
                told[item.key] = settle(ledger, item, Event.ACCEPTED)

        at_once([late, lambda swept=swept: swept.extend(other.sweep())])  # type: ignore[misc]
        states = world.states()
        sent = {key for key, true in told.items() if true}
        assert all(states[k] == ("SENT" if k in sent else "UNKNOWN") for k in told)
        assert swept == [("w1", len(items) - len(sent))]


def test_of_many_that_register_one_name_at_once_one_gets_it(world: World) -> None:
    ledgers = [world.open() for _ in range(THREADS)]
    got: list[str] = []

    def run(ledger: SqlLedger, n: int) -> None:
        try:
            ledger.register(worker(host=f"host{n}"))
            got.append("registered")
        except Exception as exc:
            got.append(type(exc).__name__)

    at_once([partial(run, ledger, n) for n, ledger in enumerate(ledgers)])
    assert Counter(got) == {"registered": 1, "WorkerNameTaken": THREADS - 1}


def migrate(url: str) -> tuple[str, str]:
    return upgrade(Settings(database=DatabaseSettings(url=url)))


def test_two_processes_may_upgrade_at_once(empty_url: str) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [pool.apply_async(migrate, (empty_url,)) for _ in range(2)]
        befores = sorted(job.get(60)[0] for job in jobs)
    assert befores[0] == ""
    open_ledger(Settings(database=DatabaseSettings(url=empty_url))).close()
