"""The worker's life: start, run, drain, end.

    STARTING ─▶ RUNNING ─▶ DRAINING ─▶ STOPPED        only forward

The drain order:

1. The source takes nothing more but stays in the group: no other worker gets a partition in progress.
2. Intake claims nothing more and forgets unclaimed deliveries: their offsets never passed.
3. Lanes give back deliveries that have not begun, and let calls end.
4. Settle records all of it.
5. The source commits the last offsets, which are true only now.
6. The worker leaves the group.
7. It retires its heartbeat row: open deliveries are in doubt at once, not after a lease.

A worker that failed drains, too: calls under way end, and settle writes their outcomes while it lives. Else
each would be in doubt, and might be sent twice (docs/decisions/334-a-failed-worker-waits-for-its-calls.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

import structlog

from dispatcher.control import SnapshotSource, lanes_paused
from dispatcher.dead_letters.writer import DeadLetterWriter
from dispatcher.kafka.group_member import MemberFenced
from dispatcher.kafka.missing_topics import MissingTopics
from dispatcher.kafka.removed_records import RemovedRecords
from dispatcher.kafka.source import Source, SourceFailed
from dispatcher.pipeline.completion import CompletionStage
from dispatcher.pipeline.expand import ExpandStage
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.settle import CombinedCommit, Settle
from dispatcher.pipeline.work import Finished
from idempotency.ledger import LedgerError
from message.vocabulary import Lane
from policy.schema import Guarantee
from policy.watcher import PolicyWatcher
from sending.accounts.fleet_size import LimitsMaintenance
from sending.runtime.clock import Clock
from sending.runtime.control import ControlWatcher
from sending.runtime.lease import WorkerLease
from sending.runtime.outage import Outage
from sending.runtime.threads import ThreadGroup
from sending.sum_writer import SumWriter

log = structlog.get_logger(__name__)

_COMMIT_S = 2.0
"""Part of the drain deadline that is reserved for the last commit."""
_CLOSE_S = 5.0
_SETTLE_POLL_S = 0.005
_NO_CALL_S = 1.0
"""Time without a call under way after which a worker with a dead thread waits no longer."""
_SETTLE = "settle-"
"""Begins the names of the threads that write outcomes."""


class WorkerPhase(IntEnum):
    """Phase of the worker; only moves forward."""

    STARTING = 0
    RUNNING = 1
    DRAINING = 2
    """Takes nothing more, ends begun deliveries."""
    STOPPED = 3


class LaneEntry(NamedTuple):
    """Some lanes with their stages up to the claim, and the queue of their settle stage."""

    screen: ExpandStage
    intake: Intake
    pools: Sequence[LanePool]
    finished: SimpleQueue[Finished]
    combined_commit: CombinedCommit | None = None
    """None for `best_effort` lanes."""

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of its pools."""
        return [pool.lane for pool in self.pools]

    def run_expand(self) -> None:
        """Runs the expand stage, then closes intake: nothing more is offered."""
        self.screen.run()
        self.intake.close()

    def stop(self) -> None:
        """Stops claiming; idempotent."""
        self.intake.stop()
        self.screen.stop()


class WorkerStages(NamedTuple):
    """The worker's parts, built by `dispatcher.wiring`."""

    source: Source
    entries: Sequence[LaneEntry]
    pools: Sequence[LanePool]
    settles: Sequence[Settle]
    """One for each entry, in their order."""
    completion: CompletionStage
    dead_letters: DeadLetterWriter
    topics: MissingTopics
    removed: RemovedRecords
    lease: WorkerLease
    outage: Outage
    upkeep: LimitsMaintenance
    watch: PolicyWatcher
    control: ControlWatcher
    snapshot: SnapshotSource
    sums: SumWriter
    thread_group: ThreadGroup
    clock: Clock


class WorkerFailed(RuntimeError):
    """A background thread died; the text names it and its cause."""


class Worker:
    """Runs the stages; the thread that calls `run` becomes the source's."""

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
        self._source_failure: SourceFailed | MemberFenced | None = None
        self._called_at = 0.0
        """Monotonic time at which the drain last saw a call under way."""
        self._ledger_lanes = frozenset(
            p.lane for p in stages.pools if p.policy.guarantee is not Guarantee.BEST_EFFORT
        )

    def stop(self) -> None:
        """Asks for the drain; idempotent, also before the start."""
        self._stop.set()

    @property
    def not_ready(self) -> str | None:
        """The reason why the worker is not ready; None if it is."""
        if self.phase is not WorkerPhase.RUNNING:
            return self.phase.name.lower()
        if (cause := self._stages.outage.cause) is not None:
            return cause
        return self._stages.topics.nothing_to_read or self._stages.source.absence

    def run(self) -> None:
        """Starts, works until `stop`, drains. Raises WorkerFailed when a thread died, SourceFailed or
        MemberFenced when the consumer cannot go on."""
        self._start()
        self.phase = WorkerPhase.RUNNING
        try:
            while not self._stop.is_set() and not self._stages.thread_group.failed.is_set():
                self.run_once()
        except (SourceFailed, MemberFenced) as exc:
            self._source_failure = exc
        finally:
            self._drain()
        self._raise_failure()

    def run_once(self) -> None:
        """Runs one round of the source. Closes the lanes that need the ledger while it is away, lanes whose
        permits for dead letters are spent, and paused lanes."""
        stages = self._stages
        away = self._ledger_lanes if stages.outage.on else frozenset()
        paused = lanes_paused(stages.pools)
        stages.source.close_lanes(away | stages.dead_letters.spent | paused)
        stages.source.run_once()

    def _start(self) -> None:
        stages = self._stages
        stages.control.look()  # before anything is claimed
        for pool in stages.pools:
            pool.start()
        for number, settle in enumerate(stages.settles):
            stages.thread_group.start(f"{_SETTLE}{number}", partial(self._settle, settle))
        stages.thread_group.start("aftermath", stages.completion.run)
        for number, entry in enumerate(stages.entries):
            stages.thread_group.start(f"intake-{number}", entry.intake.run)
            stages.thread_group.start(f"screen-{number}", entry.run_expand)
        stages.thread_group.start("dead-letters", stages.dead_letters.run)
        stages.thread_group.start("topics", stages.topics.run)
        stages.thread_group.start("removed-records", stages.removed.run)
        stages.thread_group.start("upkeep", stages.upkeep.run)
        stages.thread_group.start("policy", stages.watch.run)
        stages.thread_group.start("control", stages.control.run)
        stages.thread_group.start("heart", lambda: stages.lease.run(stages.snapshot))
        stages.thread_group.start("sums", stages.sums.run)
        stages.source.subscribe(self._lanes)

    def _settle(self, settle: Settle) -> None:
        """Runs settle. The last one that ends stops completion: no batch follows."""
        settle.run()
        if all(one.ended for one in self._stages.settles):
            self._stages.completion.stop()

    def _drain(self) -> None:
        stages, clock = self._stages, self._stages.clock
        self.phase = WorkerPhase.DRAINING
        self._called_at = clock.monotonic()
        deadline = self._called_at + self._drain_s
        log.info("draining", unsettled=self._unsettled(), deadline_s=self._drain_s)
        stages.lease.draining()
        stages.watch.stop()
        stages.control.stop()
        stages.topics.stop()
        stages.removed.stop()
        stages.source.quiet()
        for entry in stages.entries:
            entry.stop()
        for pool in stages.pools:
            pool.stop()
        drained = self._await_settled(deadline - min(_COMMIT_S, self._drain_s / 2))
        self._end_settling(drained)
        self._flush_commits(deadline)
        self._leave(deadline)
        self.phase = WorkerPhase.STOPPED
        log.info("stopped", left_to_ledger=self.left, drained=drained)

    def _await_settled(self, deadline: float) -> bool:
        """Polls the group until nothing is between claim and settlement. Returns False at the deadline."""
        stages = self._stages
        while self._unsettled() or stages.source.busy:
            if stages.clock.monotonic() >= deadline or self._waits_in_vain():
                self.left = self._unsettled()
                return False
            self._turn_source()
        return True

    def _waits_in_vain(self) -> bool:
        """Returns whether a thread died, and nothing that is left can end without it."""
        failure = self._stages.thread_group.failure
        if failure is None:
            return False
        now = self._stages.clock.monotonic()
        if any(pool.busy or pool.queued for pool in self._stages.pools):
            self._called_at = now
        return failure[0].startswith(_SETTLE) or now - self._called_at >= _NO_CALL_S

    def _turn_source(self) -> None:
        """Runs one round of the source during the drain. A source that fails is not asked again, and the
        drain goes on without it."""
        if self._source_failure is not None:
            time.sleep(_SETTLE_POLL_S)
            return
        try:
            self._stages.source.run_once()
        except (SourceFailed, MemberFenced) as exc:
            self._source_failure = exc

    def _flush_commits(self, deadline: float) -> None:
        """Commits the last offsets. A source that failed gets little time: the group may refuse its
        commits, and another worker reads from the last ones that the broker has."""
        now = self._stages.clock.monotonic()
        if self._source_failure is not None:
            deadline = min(deadline, now + _COMMIT_S)
        try:
            self._stages.source.flush_commits(max(deadline, now + _SETTLE_POLL_S))
        except (SourceFailed, MemberFenced) as exc:
            self._source_failure = self._source_failure or exc

    def _end_settling(self, drained: bool) -> None:
        stages = self._stages
        if not drained:
            stages.outage.stop.set()
        for settle in stages.settles:
            settle.stop()
        stages.upkeep.stop()
        stages.dead_letters.stop()
        for pool in stages.pools:
            pool.close()

    def _leave(self, deadline: float) -> None:
        """Leaves the group and the ledger. An unreachable broker or database does not hold it up: session
        and lease end by themselves."""
        remaining = max(deadline - self._stages.clock.monotonic(), 1.0)
        closing = threading.Thread(target=self._stages.source.close, name="close", daemon=True)
        closing.start()
        closing.join(min(remaining, _CLOSE_S))
        self._stages.lease.stop()
        try:
            self._stages.lease.retire()
        except LedgerError as exc:
            log.warning("not_retired", cause=str(exc), what="the lease will lapse instead")
        self._stages.sums.close()

    def _unsettled(self) -> int:
        return sum(pool.unsettled for pool in self._stages.pools)

    def _raise_failure(self) -> None:
        if self._source_failure is not None:
            raise self._source_failure
        failure = self._stages.thread_group.failure
        if failure is not None:
            name, cause = failure
            raise WorkerFailed(f"thread {name} died: {cause!r}") from cause
