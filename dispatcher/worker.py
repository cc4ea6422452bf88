"""The worker's life: start in order, go round, drain in order, end.

    STARTING ─▶ RUNNING ─▶ DRAINING ─▶ STOPPED        only forward

The drain order, once: (1) the source takes nothing more but stays in the group, so that nobody else
gets a partition whose work is under way; (2) intake claims nothing more and forgets what it had not
claimed: those offsets never passed; (3) lanes give back what has not begun and let calls end;
(4) settle records all of it; (5) the last offsets are committed, since now they are true; (6) the
group is left; (7) the heartbeat row is retired, which puts whatever is still open in doubt at once
instead of after a lease.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import structlog

from dispatcher.dead_letters.writer import DeadLetterWriter
from dispatcher.kafka.missing_topics import MissingTopics
from dispatcher.kafka.removed_records import RemovedRecords
from dispatcher.kafka.source import Source
from dispatcher.pipeline.completion import CompletionStage
from dispatcher.pipeline.expand import ExpandStage
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.settle import CombinedCommit, Settle
from idempotency.ledger import LedgerError
from message.vocabulary import Lane
from policy.schema import Guarantee
from policy.watcher import PolicyWatcher
from sending.accounts.fleet_size import LimitsMaintenance
from sending.runtime.clock import Clock
from sending.runtime.lease import WorkerLease
from sending.runtime.outage import Outage
from sending.runtime.threads import ThreadGroup

log = structlog.get_logger(__name__)

_COMMIT_S = 2.0
"""Kept of the drain deadline for the last commit."""
_CLOSE_S = 5.0
_SETTLE_POLL_S = 0.005


class WorkerPhase(IntEnum):
    """Where the worker is; only moves forward."""

    STARTING = 0
    RUNNING = 1
    DRAINING = 2
    """Takes nothing more, ends what is begun."""
    STOPPED = 3


class LaneEntry(NamedTuple):
    """The way in for some lanes."""

    screen: ExpandStage
    intake: Intake
    lanes: Sequence[Lane]
    combined_commit: CombinedCommit | None = None
    """Where the ledger answers for the lanes."""

    def run_expand(self) -> None:
        """Nothing is offered after the screen's end, so intake may end too."""
        self.screen.run()
        self.intake.close()

    def stop(self) -> None:
        """Claim nothing more; idempotent."""
        self.intake.stop()
        self.screen.stop()


class WorkerStages(NamedTuple):
    """The worker's parts, built by `dispatcher.wiring`."""

    source: Source
    entries: Sequence[LaneEntry]
    pools: Sequence[LanePool]
    settle: Settle
    completion: CompletionStage
    dead_letters: DeadLetterWriter
    topics: MissingTopics
    removed: RemovedRecords
    lease: WorkerLease
    outage: Outage
    upkeep: LimitsMaintenance
    watch: PolicyWatcher
    thread_group: ThreadGroup
    clock: Clock


class WorkerFailed(RuntimeError):
    """A background thread died; the text names it and its cause."""


class Worker:
    """Runs the stages; the calling thread becomes the source's."""

    def __init__(
        self, stages: WorkerStages, lanes: Sequence[Lane], drain_s: float, stop: threading.Event
    ) -> None:
        """`stop` may be set at any time, also before the start."""
        self.phase = WorkerPhase.STARTING
        self.left = 0
        """Deliveries left to the ledger at the end, in doubt."""
        self._stages = stages
        self._lanes = lanes
        self._drain_s = drain_s
        self._stop = stop
        self._ledger_lanes = frozenset(
            p.lane for p in stages.pools if p.policy.guarantee is not Guarantee.BEST_EFFORT
        )

    def stop(self) -> None:
        """Ask for the drain; before the start too, and any number of times."""
        self._stop.set()

    @property
    def not_ready(self) -> str | None:
        """Why the worker is not ready, or None."""
        if self.phase is not WorkerPhase.RUNNING:
            return self.phase.name.lower()
        if self._stages.outage.on:
            return "the ledger's database is away"
        return self._stages.topics.nothing_to_read or self._stages.source.absence

    def run(self) -> None:
        """Start, work until `stop`, drain. Raises WorkerFailed when a thread died."""
        self._start()
        self.phase = WorkerPhase.RUNNING
        try:
            while not self._stop.is_set() and not self._stages.thread_group.failed.is_set():
                self.run_once()
        finally:
            self._drain()
        self._raise_casualty()

    def run_once(self) -> None:
        """One round of the source; while the ledger is away its lanes are closed, and so is a lane whose
        permits for dead letters are spent."""
        stages = self._stages
        away = self._ledger_lanes if stages.outage.on else frozenset()
        stages.source.close_lanes(away | stages.dead_letters.spent)
        stages.source.run_once()

    def _start(self) -> None:
        stages = self._stages
        for pool in stages.pools:
            pool.start()
        stages.thread_group.start("settle", self._settle)
        stages.thread_group.start("aftermath", stages.completion.run)
        for number, entry in enumerate(stages.entries):
            stages.thread_group.start(f"intake-{number}", entry.intake.run)
            stages.thread_group.start(f"screen-{number}", entry.run_expand)
        stages.thread_group.start("dead-letters", stages.dead_letters.run)
        stages.thread_group.start("topics", stages.topics.run)
        stages.thread_group.start("removed-records", stages.removed.run)
        stages.thread_group.start("upkeep", stages.upkeep.run)
        stages.thread_group.start("policy", stages.watch.run)
        stages.thread_group.start("heart", stages.lease.run)
        stages.source.subscribe(self._lanes)

    def _settle(self) -> None:
        """Nothing follows after settle's last batch."""
        self._stages.settle.run()
        self._stages.completion.stop()

    def _drain(self) -> None:
        stages, clock = self._stages, self._stages.clock
        self.phase = WorkerPhase.DRAINING
        deadline = clock.monotonic() + self._drain_s
        log.info("draining", unsettled=self._unsettled(), deadline_s=self._drain_s)
        stages.lease.draining()
        stages.watch.stop()
        stages.topics.stop()
        stages.removed.stop()
        stages.source.quiet()
        for entry in stages.entries:
            entry.stop()
        for pool in stages.pools:
            pool.stop()
        drained = self._await_settled(deadline - min(_COMMIT_S, self._drain_s / 2))
        self._end_settling(drained)
        stages.source.flush_commits(max(deadline, clock.monotonic() + _SETTLE_POLL_S))
        self._leave(deadline)
        self.phase = WorkerPhase.STOPPED
        log.info("stopped", left_to_ledger=self.left, drained=drained)

    def _await_settled(self, deadline: float) -> bool:
        """Go round, polling the group, until nothing is between claim and settlement."""
        stages = self._stages
        while self._unsettled() or stages.source.busy:
            if stages.clock.monotonic() >= deadline or stages.thread_group.failed.is_set():
                self.left = self._unsettled()
                return False
            stages.source.run_once()
        return True

    def _end_settling(self, drained: bool) -> None:
        stages = self._stages
        if not drained:
            stages.outage.stop.set()
        stages.settle.stop()
        stages.upkeep.stop()
        stages.dead_letters.stop()
        for pool in stages.pools:
            pool.close()

    def _leave(self, deadline: float) -> None:
        """Leave the group and the ledger, without being held up by a broker or database that is
        away: what they are not told they find out by themselves."""
        remaining = max(deadline - self._stages.clock.monotonic(), 1.0)
        closing = threading.Thread(target=self._stages.source.close, name="close", daemon=True)
        closing.start()
        closing.join(min(remaining, _CLOSE_S))
        self._stages.lease.stop()
        try:
            self._stages.lease.retire()
        except LedgerError as exc:
            log.warning("not_retired", cause=str(exc), what="the lease will lapse instead")

    def _unsettled(self) -> int:
        return sum(pool.unsettled for pool in self._stages.pools)

    def _raise_casualty(self) -> None:
        failure = self._stages.thread_group.failure
        if failure is not None:
            name, cause = failure
            raise WorkerFailed(f"thread {name} died: {cause!r}") from cause
