"""Makes the checks that are due: a bounded pool of threads for each kind of transaction.

One kind's slow endpoint holds up no other kind, and a check that fails puts its own transaction back and
holds up no other. Waiting counts as nothing: a check is counted once its answer is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import structlog

from idempotency.ledger import LedgerError
from lookback.check import Answer, Checker, CheckReply
from lookback.checks.errors import CheckNotMade
from lookback.metrics import LookbackMetrics
from lookback.transaction import TxRow, TxTerms

log = structlog.get_logger(__name__)
_MS: Final = 1_000
_AWAY_S: Final = 1.0
_WRITES: Final = 5
"""Tries to write an answer while the database is away; after them the lease lapses and it is asked anew."""


class CheckQueue(Protocol):
    """The store (`lookback.store.LookbackStore`). Every method raises LedgerError."""

    def claim_checks(self, biz_type: str, limit: int, lease_ms: int) -> list[TxRow]:
        """Leases due transactions of a kind."""
        ...

    def reply(self, row: TxRow, reply: CheckReply) -> str:
        """Applies an answer. Returns the step's name."""
        ...

    def sweep(self) -> int:
        """Moves what waits for no check."""
        ...


class CheckPool:
    """The checks of one kind under way. `start` is the scheduler's thread; the count is behind a lock."""

    def __init__(self, biz_type: str, checker: Checker, threads: int) -> None:
        self.biz_type = biz_type
        self.checker = checker
        self._threads = threads
        self._lock = threading.Lock()
        self._busy = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"check-{biz_type}")

    @property
    def busy(self) -> int:
        """Checks under way."""
        return self._busy

    @property
    def room(self) -> int:
        """Checks that may begin."""
        return self._threads - self._busy

    def start(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Runs `work` in a thread, then `done`."""

        def run() -> None:
            try:
                work()
            except Exception:  # the next check goes on
                log.exception("check_failed", biz_type=self.biz_type)
            finally:
                with self._lock:
                    self._busy -= 1
                done()

        with self._lock:
            self._busy += 1
        self._pool.submit(run)

    def close(self) -> None:
        """Starts no more; waits for nothing."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class CheckScheduler:
    """`run` is one thread's; any thread may call `stop` and `in_check`."""

    def __init__(
        self,
        store: CheckQueue,
        checkers: Mapping[str, Checker],
        terms: Mapping[str, TxTerms],
        metrics: LookbackMetrics,
        *,
        lease_s: float,
        poll_s: float,
        on_committed: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`checkers` are by the name of their endpoint."""
        self._store = store
        self._metrics = metrics
        self._lease_ms = int(lease_s * _MS)
        self._poll_s = poll_s
        self._on_committed = on_committed
        self._monotonic = monotonic
        self._pools = [
            CheckPool(name, checkers[one.check], one.threads)
            for name, one in terms.items()
            if one.has_check
        ]
        self._next_sweep = float("-inf")  # the thread of `run`
        self._wake = threading.Event()
        self._stop = threading.Event()
        self.beat = monotonic()
        """Time of the last round; `run` writes it, the health page reads it."""

    def in_check(self) -> dict[str, int]:
        """Returns the checks under way by kind."""
        return {pool.biz_type: pool.busy for pool in self._pools}

    def stop(self) -> None:
        """Begins no more checks; idempotent."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Begins due checks until `stop`; then waits for those under way."""
        while not self._stop.is_set():
            self.run_once()
        while any(pool.busy for pool in self._pools):
            self.beat = self._monotonic()
            self._wake.clear()
            self._wake.wait(self._poll_s)
        for pool in self._pools:
            pool.close()

    def run_once(self) -> int:
        """Begins the checks that are due and have room. Returns their number."""
        self.beat = self._monotonic()
        self._wake.clear()
        try:
            self._sweep()
            begun = sum(self._begin(pool) for pool in self._pools)
        except LedgerError as exc:
            log.debug("checks_not_read", cause=str(exc))
            self._stop.wait(_AWAY_S)
            return 0
        if not begun:
            self._wake.wait(self._poll_s)
        return begun

    def _sweep(self) -> None:
        """Sweeps once an interval: a round follows the end of each check."""
        if self._monotonic() >= self._next_sweep:
            self._store.sweep()
            self._next_sweep = self._monotonic() + self._poll_s

    def _begin(self, pool: CheckPool) -> int:
        if pool.room <= 0:
            return 0
        rows = self._store.claim_checks(pool.biz_type, pool.room, self._lease_ms)
        for row in rows:
            pool.start(lambda row=row: self._check(pool, row), self._wake.set)  # type: ignore[misc]
        return len(rows)

    def _check(self, pool: CheckPool, row: TxRow) -> None:
        begun = self._monotonic()
        reply = asked(pool.checker, row)
        if reply.made:
            seconds = self._monotonic() - begun
            self._metrics.check_seconds.labels(pool.biz_type).observe(seconds)
            self._metrics.checks.labels(pool.biz_type, reply.answer.value).inc()
        did = self._written(row, reply)
        if did == "late":
            self._metrics.late.labels("check").inc()
        elif did == "COMMITTED":
            self._on_committed()

    def _written(self, row: TxRow, reply: CheckReply) -> str:
        for _ in range(_WRITES):
            try:
                return self._store.reply(row, reply)
            except LedgerError as exc:
                log.warning("check_not_written", tx_id=row.tx_id, cause=str(exc))
            if self._stop.wait(_AWAY_S):
                break
        return ""


def asked(checker: Checker, row: TxRow) -> CheckReply:
    """Returns the answer; an error of any kind is UNKNOWN."""
    try:
        return checker.check(row.biz_type, row.biz_id, row.tx_id)
    except CheckNotMade as exc:
        return CheckReply(Answer.UNKNOWN, str(exc), made=False)
    except Exception as exc:  # an endpoint's fault must not end the checks of others
        log.warning("check_failed", biz_type=row.biz_type, tx_id=row.tx_id, cause=repr(exc))
        return CheckReply(Answer.UNKNOWN, f"the check failed: {type(exc).__name__}")
