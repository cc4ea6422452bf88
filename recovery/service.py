"""One recovery: its parts, its jobs, and its end. The built-in loop or Celery's tasks call the jobs. Every
job may be called too often, too late, by two at once, or not at all.

The drain order:

1. Jobs begin nothing more.
2. Lanes give back deliveries that have not begun, and let calls end.
3. Settle writes all of it.
4. The heartbeat row is retired: open deliveries are in doubt at once, not after a lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

import structlog
from structlog.contextvars import bound_contextvars

from idempotency.ledger import LedgerError
from idempotency.recovery.contract import RecoveryStore
from policy.watcher import PolicyWatcher
from recovery.activity import Activity
from recovery.archive_job import Archiving
from recovery.control import RecoverySnapshotSource
from recovery.dead_letters.indexer import DeadLetterIndexer
from recovery.group_lag import GroupLagMonitor
from recovery.lost.job import LostDeliveries
from recovery.outcomes.publisher import OutcomePublisher
from recovery.resend_jobs.runner import ResendJobRunner
from recovery.retry.line_watch import LineWatch
from recovery.retry.pool import RetryPool, RetryWork
from recovery.retry.prompts import Prompts
from recovery.retry.settler import RetrySettler
from recovery.retry.stage import RetryStage
from recovery.telemetry import RecoveryTelemetry
from recovery.unknown.resolver import Resolving
from sending.accounts.fleet_size import LimitsMaintenance
from sending.runtime.clock import Clock
from sending.runtime.control import ControlWatcher
from sending.runtime.lease import WorkerLease
from sending.runtime.outage import Outage
from sending.runtime.threads import ThreadGroup
from sending.sum_writer import SumWriter

log = structlog.get_logger(__name__)
_POLL_S: Final = 0.05
MEASURE_LOOKS: Final = 10
"""Looks between two measurements of the backlog. Each recovery measures for itself, without a broker."""
_MEASURES_VALID: Final = 3
"""Failed measurements after which the last number is no longer shown."""


class RecoveryParts(NamedTuple):
    """The parts of a recovery; see `recovery.wiring`."""

    name: str
    lanes: Sequence[str]
    rows: RecoveryStore
    resending: RetryStage
    settler: RetrySettler
    resolving: Resolving
    callers: Mapping[str, RetryPool]
    """Pools for deliveries that were called before, by lane."""
    releasing: Mapping[str, RetryPool]
    """Pools for deliveries that were never called, by lane."""
    lease: WorkerLease
    upkeep: LimitsMaintenance
    watch: PolicyWatcher
    control: ControlWatcher
    snapshot: RecoverySnapshotSource
    outage: Outage
    report: RecoveryTelemetry
    lines: LineWatch
    group_lag: GroupLagMonitor
    dead_letters: DeadLetterIndexer
    clock: Clock
    thread_group: ThreadGroup
    finished: SimpleQueue[RetryWork | None]
    lost: LostDeliveries
    resend_jobs: ResendJobRunner
    archiving: Archiving | None
    """None where it is switched off."""
    schedule: Activity
    """Jobs called by either schedule."""
    prompts: Prompts
    sums: SumWriter
    publishers: Sequence[OutcomePublisher]
    """Of outcome events; they end last, after the outcomes of the drain are written."""
    poll_s: float
    stop: threading.Event
    """Set when nothing more may begin."""


class Recovery:
    """Jobs are thread-safe and raise LedgerError alone; one thread calls `start` and `drain`."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self._callers = [*parts.callers.values(), *parts.releasing.values()]
        self._ended = threading.Event()
        self._starting = threading.Lock()
        self._under_way: set[tuple[str, str]] = set()
        """Jobs that run, each with its lane; `_alone` writes it under _starting. A schedule has few
        threads: one slow lane must not take them all."""
        self._measure_s = MEASURE_LOOKS * parts.poll_s
        self.left = 0
        """Number of deliveries left to the ledger at the end, in doubt."""

    # ---- jobs --------------------------------------------------------------------------------

    def look(self) -> tuple[list[str], list[str]]:
        """Returns the lanes with due deliveries, and those with doubts."""
        with self._parts.schedule.job():
            return self._parts.rows.lanes_with_work(self._parts.lanes)

    def resend(self, lane: str) -> int:
        """Sends the lane's due deliveries again, at most until the next look. Returns their number: 0 for a
        lane that it does not serve, and while another thread does it."""
        if lane not in self._parts.lanes:
            return 0
        with self._parts.schedule.job(), bound_contextvars(lane=lane):
            return self._alone("resend", lane, partial(self._resend, lane))

    def _resend(self, lane: str) -> int:
        parts, count = self._parts, 0
        deadline = parts.clock.monotonic() + parts.poll_s
        while not parts.stop.is_set() and parts.clock.monotonic() < deadline:
            taken = parts.resending.run_once(lane)
            if taken == 0:
                break
            count += taken or 0
            if taken is None:
                parts.stop.wait(_POLL_S)
        return count

    def resolve(self, lane: str) -> int:
        """Asks about a batch of the lane's doubts. Returns their number: 0 for a lane that it does not
        serve, and while another thread does it."""
        if lane not in self._parts.lanes:
            return 0
        with self._parts.schedule.job(), bound_contextvars(lane=lane):
            if self._parts.stop.is_set():
                return 0
            count = self._alone("resolve", lane, partial(self._parts.resolving.run_once, lane))
        if count:
            self._parts.prompts.give(lane)
        return count

    def enter_lost(self) -> int:
        """Enters deliveries that were found lost. Returns their number: 0 while another thread does it."""
        if self._parts.stop.is_set():
            return 0
        return self._alone("lost", "", self._parts.lost.run_once)

    def run_jobs(self) -> int:
        """Takes the resend jobs a step further. Returns the number of open ones; 0 while another thread
        does."""
        if self._parts.stop.is_set():
            return 0
        return self._alone("resend_jobs", "", self._parts.resend_jobs.run_once)

    def _alone(self, job: str, lane: str, run: Callable[[], int]) -> int:
        """Returns what `run` returns; 0 at once if the same job runs already."""
        with self._starting:
            if (job, lane) in self._under_way:
                return 0
            self._under_way.add((job, lane))
        try:
            return run()
        finally:
            with self._starting:
                self._under_way.discard((job, lane))

    def measure(self) -> None:
        """Measures the backlog."""
        backlog = self._parts.rows.backlog(self._parts.lanes)
        self._parts.report.backlog(backlog, _MEASURES_VALID * self._measure_s)

    def measure_forever(self) -> None:
        """Measures until recovery ends; while the ledger is away there is no number."""
        while not self._ended.wait(self._measure_s):
            try:
                self.measure()
            except LedgerError as exc:
                log.debug("backlog_not_measured", cause=str(exc))

    def tidy(self) -> None:
        """Archives old days of the ledger."""
        archiving = self._parts.archiving
        if archiving is not None and not self._parts.stop.is_set():
            self._alone("tidy", "", archiving.run_once)

    def hold(self, duty: str, lease_ms: int) -> bool:
        """Returns whether this recovery has the duty, which one recovery has at a time; False also while
        the ledger is away."""
        try:
            return self._parts.rows.hold(duty, self._parts.name, lease_ms)
        except LedgerError as exc:
            log.warning("duty_not_held", duty=duty, cause=str(exc))
            return False

    def drop(self, duty: str) -> None:
        """Gives up the duty; the next recovery that asks gets it."""
        try:
            self._parts.rows.drop(duty, self._parts.name)
        except LedgerError as exc:
            log.warning("duty_not_dropped", duty=duty, cause=str(exc))

    # ---- life --------------------------------------------------------------------------------

    @property
    def poll_s(self) -> float:
        """Seconds between two looks."""
        return self._parts.poll_s

    @property
    def thread_group(self) -> ThreadGroup:
        """The threads of recovery; a scheduler adds its own."""
        return self._parts.thread_group

    @property
    def stopping(self) -> threading.Event:
        """Set when nothing more may begin."""
        return self._parts.stop

    def start(self) -> None:
        """Starts the threads that call, settle and measure, and the lease."""
        self._parts.control.look()  # before anything is taken
        for callers in self._callers:
            callers.start()
        self._parts.thread_group.start("settle", self._parts.settler.settle_forever)
        resend = self._parts.resending.run_once
        self._parts.thread_group.start("prompts", lambda: self._parts.prompts.run(resend))
        beat = partial(self._parts.lease.run, self._parts.snapshot)
        self._parts.thread_group.start("heart", beat)
        self._parts.thread_group.start("upkeep", self._parts.upkeep.run)
        self._parts.thread_group.start("policy", self._parts.watch.run)
        self._parts.thread_group.start("control", self._parts.control.run)
        self._parts.thread_group.start("backlog", self.measure_forever)
        self._parts.thread_group.start("lines", self._parts.lines.run)
        self._parts.thread_group.start("sums", self._parts.sums.run)
        self._parts.thread_group.start("group-lag", self._parts.group_lag.run)
        self._parts.thread_group.start("dead-letters", self._parts.dead_letters.run)
        for publisher in self._parts.publishers:
            self._parts.thread_group.start(publisher.duty, publisher.run)

    def drain(self, deadline_s: float) -> None:
        """Ends within `deadline_s` seconds; leaves open deliveries to the ledger."""
        parts = self._parts
        deadline = parts.clock.monotonic() + deadline_s
        log.info("draining", unsettled=self.unsettled, deadline_s=deadline_s)
        parts.stop.set()
        parts.watch.stop()
        parts.control.stop()
        parts.lines.stop()
        parts.group_lag.stop()
        parts.dead_letters.stop()
        parts.prompts.stop()
        parts.lease.draining()
        for callers in self._callers:
            callers.stop()
        settled = threading.Event()
        while (
            self.unsettled
            and parts.clock.monotonic() < deadline
            and not parts.thread_group.failed.is_set()
        ):
            settled.wait(_POLL_S)
        self.left = self.unsettled
        self._end()
        log.info("stopped", left_to_ledger=self.left)

    def _end(self) -> None:
        parts = self._parts
        parts.outage.stop.set()
        self._ended.set()
        parts.finished.put(None)
        for callers in self._callers:
            callers.close()
        parts.upkeep.stop()
        for publisher in parts.publishers:
            publisher.stop()
        parts.lease.stop()
        try:
            parts.lease.retire()
        except LedgerError as exc:
            log.warning("not_retired", cause=str(exc), what="the lease will lapse instead")
        parts.sums.close()

    @property
    def unsettled(self) -> int:
        """Number of deliveries taken and not settled."""
        return sum(callers.unsettled for callers in self._callers)
