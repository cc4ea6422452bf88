"""An outage names a user that waits for the ledger, and the cause."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from idempotency.ledger import LedgerUnavailable
from sending.runtime.outage import Outage
from tests.harness.waiting import await_

SLOW = "the ledger's database took too long: statement cancelled"
AWAY = "the ledger's database is away: no route"


def refusing(cause: str, until: threading.Event) -> Callable[[], str]:
    """Returns a call that fails for this cause until the event is set."""

    def call() -> str:
        if until.is_set():
            return "answer"
        raise LedgerUnavailable(cause)

    return call


def test_the_cause_is_that_of_the_user_who_waits_longest() -> None:
    outage, first, second = Outage(), threading.Event(), threading.Event()
    threads = []
    for who, cause, until in (("intake", SLOW, first), ("settle", AWAY, second)):
        call = refusing(cause, until)
        threads.append(threading.Thread(target=outage.until_available, args=(who, call)))
        threads[-1].start()
        await_(lambda: outage.on, what="it waits")
    assert outage.cause == SLOW
    first.set()
    threads[0].join(10)
    await_(lambda: outage.cause == AWAY, what="the other one is named")
    second.set()
    threads[1].join(10)
    assert [outage.on, outage.cause] == [False, None]


def test_the_cause_is_that_of_the_latest_failure() -> None:
    outage, causes = Outage(), iter([SLOW, AWAY])
    seen: list[str | None] = []

    def call() -> str:
        seen.append(outage.cause)
        if (cause := next(causes, None)) is None:
            return "answer"
        raise LedgerUnavailable(cause)

    assert outage.until_available("intake", call) == "answer"
    assert seen == [None, SLOW, AWAY]


def test_after_stop_the_cause_reaches_the_caller() -> None:
    outage = Outage()
    outage.stop.set()
    with pytest.raises(LedgerUnavailable, match="took too long"):
        outage.until_available("settle", refusing(SLOW, threading.Event()))
