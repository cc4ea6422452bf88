"""The worker's lease: a heartbeat row in the ledger, and the right to send that it gives.

The token on ledger writes cannot stop a byte to a provider. So a thread asks `wait_valid` before each call:
the lease must hold on the monotonic clock, less a margin. A worker that was paused past its lease finds it
lapsed before it sends. It may also be paused between that check and the first byte: the call carries the
lease's end, which is checked again as the byte is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from idempotency.ledger import IDLE, Lease, Ledger, LedgerUnavailable, WorkerInfo
from sending.runtime.clock import Clock

log = structlog.get_logger(__name__)

MARGIN = 0.2
"""Share of the lease that is not used for sending: time to write a call that begins at the last moment,
and for a difference of the clocks."""
_RETRY_S = 0.5
_WAIT_S = 0.05


class WorkerLease:
    """Registers, beats, sweeps dead peers. `register`, `beat`, `retire` write; lanes ask `wait_valid`."""

    def __init__(
        self,
        ledger: Ledger,
        worker: WorkerInfo,
        *,
        clock: Clock,
        interval_s: float,
        idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """`idle` returns whether the process sends nothing now; each beat asks it."""
        self.swept = 0
        """Deliveries of dead workers that this one turned UNKNOWN."""
        self.lapses = 0
        self._ledger = ledger
        self._worker = worker
        self._clock = clock
        self._interval_s = interval_s
        self._lease_s = worker.lease_ms / 1_000
        self._usable_s = self._lease_s * (1 - MARGIN)
        self._valid_until = float("-inf")
        self._ends_at = float("-inf")
        self._healthy_since: float | None = None
        self._lease: Lease | None = None
        self._since_ms = 0
        self._stop = threading.Event()
        self._idle = idle
        self._draining = False
        self._bell = threading.Event()
        self._beating = threading.Lock()
        """A beat under way must not register again a worker that `retire` just took out."""

    @property
    def valid(self) -> bool:
        """Whether a send may begin."""
        return self._clock.monotonic() < self._valid_until

    @property
    def lease(self) -> Lease | None:
        """The lease as last written."""
        return self._lease

    @property
    def since_ms(self) -> int:
        """The time at which this process registered first, epoch milliseconds by the ledger's clock."""
        return self._since_ms

    @property
    def term(self) -> int:
        """The ledger's number of the present lease; a lapse begins a new one."""
        return self._lease.epoch if self._lease is not None else 0

    def wait_valid(self, term: int, until: Callable[[], bool]) -> bool:
        """See `dispatcher.pipeline.lanes.SendPermit`."""
        while not self.valid:
            if until():
                return False
            time.sleep(_WAIT_S)
        return term == self.term

    def ends_at(self, term: int) -> float:
        """See `dispatcher.pipeline.lanes.SendPermit`."""
        end = self._ends_at  # before the term: a new one's end is never taken for the old one's
        return end if term == self.term else float("-inf")

    def register(self) -> None:
        """Enters the worker into the ledger. Raises LedgerError."""
        asked_at = self._clock.monotonic()
        lease = self._ledger.register(self._worker)
        self._adopt(lease, asked_at)
        self._since_ms = self._since_ms or lease.now_ms

    def run(self, snapshot: Callable[[], str] = lambda: "") -> None:
        """Beats until `stop`; each beat writes a snapshot."""
        while not self._stop.is_set():
            self._bell.wait(self._pause())
            self._bell.clear()
            self.beat(snapshot())

    def hurry(self) -> None:
        """Lets `run` beat at once, after a change of the process's state. Any thread may call it."""
        self._bell.set()

    def beat(self, snapshot: str = "") -> None:
        """Sends one heartbeat; registers again after a lapse."""
        with self._beating:
            if not self._stop.is_set():
                self._beat(snapshot)

    def _beat(self, snapshot: str) -> None:
        asked_at = self._clock.monotonic()
        try:
            lease = None
            if self._lease is not None:
                lease = self._ledger.heartbeat(self._lease, self._state(), snapshot)
            if lease is None:
                self._lapsed()
                asked_at = self._clock.monotonic()
                lease = self._ledger.register(self._worker)
            self._adopt(lease, asked_at)
            self._sweep()
        except LedgerUnavailable as exc:
            self._healthy_since = None
            log.warning("heartbeat_failed", cause=str(exc), valid=self.valid)

    def draining(self) -> None:
        """Shows in `hongyan_workers`, at once, that this worker takes no more."""
        self._draining = True
        self._bell.set()

    def stop(self) -> None:
        """Ends the thread; idempotent."""
        self._stop.set()
        self._bell.set()

    def retire(self) -> None:
        """Takes the worker out of the ledger's list; its open deliveries become UNKNOWN at once."""
        self.stop()
        self._valid_until = float("-inf")
        with self._beating:
            lease, self._lease = self._lease, None
            if lease is not None:
                self._ledger.retire(lease)

    def _state(self) -> str:
        if self._draining:
            return "DRAINING"
        return IDLE if self._idle() else "RUNNING"

    def _pause(self) -> float:
        return self._interval_s if self._healthy_since is not None else _RETRY_S

    def _adopt(self, lease: Lease, asked_at: float) -> None:
        """Counts the lease from before the query, so that it ends no later than the ledger's."""
        self._lease = lease
        self._clock.calibrate(lease.now_ms, asked_at)
        self._ends_at = asked_at + self._lease_s
        self._valid_until = asked_at + self._usable_s
        if self._healthy_since is None:
            self._healthy_since = asked_at

    def _lapsed(self) -> None:
        self.lapses += 1
        self._valid_until = float("-inf")
        self._healthy_since = None
        log.error("lease_lapsed", worker=self._worker.id, what="what was in flight is in doubt now")

    def _sweep(self) -> None:
        """Sweeps dead workers, but only if this one saw the database for a whole lease: right after an
        outage every heartbeat is old."""
        if self._healthy_since is None or not self.valid:
            return
        if self._clock.monotonic() - self._healthy_since < self._lease_s:
            return
        for worker, rows in self._ledger.sweep():
            self.swept += rows
            log.warning("worker_lost", worker=worker, in_doubt=rows)
