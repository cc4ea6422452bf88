"""Jobs that several threads of a schedule call at once: one of them works, the others are free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from idempotency.ledger import LedgerUnavailable
from recovery.activity import Activity
from recovery.retry.prompts import Prompts
from recovery.service import Recovery, RecoveryParts
from sending.runtime.clock import Clock

SLOW, QUICK = "wecom.notice", "sms.verification"
WAIT_S = 10.0
Job = Callable[[Recovery, str], int | None]
JOBS: dict[str, Job] = {
    "resend": Recovery.resend,
    "resolve": Recovery.resolve,
    "lost": lambda recovery, _: recovery.enter_lost(),
    "resend_jobs": lambda recovery, _: recovery.run_jobs(),
    "tidy": lambda recovery, _: recovery.tidy(),
}


class Work:
    """The work of every job. That of the slow lane, and of jobs without a lane, waits for the test."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.waits = threading.Event()
        self.goes_on = threading.Event()
        self.fault: Exception | None = None

    def run_once(self, lane: str = SLOW) -> int:
        self.begun.append(lane)
        if self.fault is not None:
            raise self.fault
        if lane == SLOW:
            self.waits.set()
            assert self.goes_on.wait(WAIT_S)
        return 0


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.goes_on.set()


@pytest.fixture
def recovery(work: Work) -> Recovery:
    parts: Any = SimpleNamespace(
        callers={},
        releasing={},
        poll_s=1.0,
        lanes=[SLOW, QUICK],
        schedule=Activity(),
        resending=work,
        resolving=work,
        lost=work,
        resend_jobs=work,
        archiving=work,
        prompts=Prompts(),
        stop=threading.Event(),
        clock=Clock(),
    )
    return Recovery(cast(RecoveryParts, parts))


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_is_under_way_takes_no_second_thread(
    recovery: Recovery, work: Work, job: str
) -> None:
    call = JOBS[job]
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(call, recovery, SLOW)
        assert work.waits.wait(WAIT_S)
        assert not threads.submit(call, recovery, SLOW).result(WAIT_S)
        assert work.begun == [SLOW]
        work.goes_on.set()
        first.result(WAIT_S)
    call(recovery, SLOW)
    assert work.begun == [SLOW] * 2


@pytest.mark.parametrize("job", ["resend", "resolve"])
def test_a_slow_lane_holds_up_no_other_lane(recovery: Recovery, work: Work, job: str) -> None:
    call = JOBS[job]
    with ThreadPoolExecutor(1) as threads:
        threads.submit(call, recovery, SLOW)
        assert work.waits.wait(WAIT_S)
        call(recovery, QUICK)
        assert work.begun == [SLOW, QUICK]
        work.goes_on.set()


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_failed_runs_again(recovery: Recovery, work: Work, job: str) -> None:
    work.fault = LedgerUnavailable("away")
    for _ in range(2):
        with pytest.raises(LedgerUnavailable):
            JOBS[job](recovery, SLOW)
    assert work.begun == [SLOW] * 2
