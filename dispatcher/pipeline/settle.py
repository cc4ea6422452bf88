"""Settle: group-commits outcomes to the ledger and frees their places in the lanes.

The next batch gathers while a commit is under way, so batches grow with the load. A worker with lanes of
both kinds has one `Settle` for the lanes with a ledger and one for the `best_effort` lanes: the first may
wait for the ledger, the second never does.
`dispatcher.pipeline.completion` does all that follows a commit.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from dispatcher.pipeline.claims import LedgerClaims
from dispatcher.pipeline.completion import SettledBatch
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Finished, Work
from idempotency.ledger import Ledger, LedgerUnavailable, Settlement
from message.states import Event
from policy.schema import Guarantee, LanePolicy, Ordering
from sending.endings import NotStarted, outcome_of
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage
from sending.settlement import Luck, after_call

SETTLE_BATCH = 1_000
"""Most outcomes in one statement."""
LINGER_S: Final = 0.001
"""Time that a commit waits for further outcomes if much more is under way."""
_SHARE: Final = 0.75
"""A batch below this share of the deliveries under way waits. Two commits of half each cost the database a
third more a delivery than one commit of all (docs/decisions/110-one-intent-and-one-end.md)."""
_IDLE_S = 0.5
_WAIT_S: Final = 0.02
"""Longest wait for a claim under way, which may itself wait seconds for locked lines."""


class Settle:
    """Takes works that lanes finished or that ended at intake, of the lanes `pools`."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        ledger: Ledger,
        *,
        outage: Outage,
        report: WorkerTelemetry,
        clock: Clock,
        finished: SimpleQueue[Finished],
        on_settled: Callable[[SettledBatch], None],
        on_room: Callable[[], None],
        combined_commit: CombinedCommit | None = None,
    ) -> None:
        """`combined_commit`: claims that may go with a commit."""
        self.beat = clock.monotonic()
        """Monotonic time of the loop's last round; for the stuck detector."""
        self.abandoned = 0
        """Number of outcomes that were not written before the worker ended."""
        self.ended = False
        """Whether `run` is over: no batch follows. Written by `run`."""
        self._pools = pools
        self._ledger = ledger
        self._outage = outage
        self._report = report
        self._clock = clock
        self._finished = finished
        self._on_settled = on_settled
        self._on_room = on_room
        self._combined_commit = combined_commit
        self._ordered = frozenset(
            name for name, pool in pools.items() if pool.policy.ordering is Ordering.KEY
        )
        """Lanes whose outcomes wake the next of their line. A lane at work keeps its ordering."""
        self._stopping = False

    def stop(self) -> None:
        """Ends `run` once the queue is empty; idempotent."""
        self._stopping = True

    def run(self) -> None:
        """Works until `stop` was called and the queue is empty."""
        while True:
            batch = self._gather()
            self.beat = self._clock.monotonic()
            if batch:
                self.settle(batch)
            elif self._stopping:
                self.ended = True
                return

    def settle(self, batch: Sequence[Finished]) -> None:
        """Commits one batch, frees its places, passes it on."""
        works = [item for item in batch if type(item) is Work]
        pairs = [(work, s) for work in works if (s := self._settlement(work)) is not None]
        places = _places(works)
        settled = self._commit(batch, pairs, places) if pairs else SettledBatch(batch)
        self._free_room(places)
        self._on_settled(settled)

    def _gather(self) -> list[Finished]:
        """Returns what ended since the last commit. Where much more is under way, waits for a moment: one
        commit for several costs hardly more than one for each."""
        batch: list[Finished] = []
        try:
            batch.append(self._finished.get(timeout=_IDLE_S))
        except Empty:
            return batch
        self._drain(batch)
        if len(batch) < self._under_way() * _SHARE and not self._stopping:
            time.sleep(LINGER_S)
            self._drain(batch)
        return batch

    def _drain(self, batch: list[Finished]) -> None:
        try:
            while len(batch) < SETTLE_BATCH:
                batch.append(self._finished.get_nowait())
        except Empty:
            return

    def _under_way(self) -> int:
        """Returns the deliveries that hold places of lanes with a ledger."""
        return sum(pool.unsettled for pool in self._pools.values() if pool.leased)

    def _settlement(self, work: Work) -> Settlement | None:
        policy = (work.terms or self._pools[work.delivery.lane].terms).policy
        settlement = settlement_of(work, policy)
        if settlement is None:
            return None
        if policy.guarantee is Guarantee.BEST_EFFORT:
            self._report.best_effort(work, settlement)
            return None
        if settlement.event is Event.GIVEN_BACK:
            work.record.given_back = True
        return settlement

    def _commit(
        self,
        batch: Sequence[Finished],
        pairs: Sequence[tuple[Work, Settlement]],
        places: Mapping[str, int],
    ) -> SettledBatch:
        settlements = [settlement for _, settlement in pairs]
        begun = self._clock.monotonic()
        try:
            written = (
                None
                if self._combined_commit is None
                else self._combined_commit.settle(settlements, places)
            )
            if written is None:
                written = self._outage.until_available(
                    "settle", lambda: self._ledger.settle(settlements, self._ordered)
                )
        except LedgerUnavailable:
            return self._leave(batch, pairs)
        return SettledBatch(batch, pairs, written, self._clock.monotonic() - begun)

    def _leave(
        self, batch: Sequence[Finished], pairs: Sequence[tuple[Work, Settlement]]
    ) -> SettledBatch:
        """Leaves outcomes unwritten: the worker ends while the ledger is away. The rows stay IN_FLIGHT and
        become UNKNOWN."""
        self.abandoned += len(pairs)
        for work, _ in pairs:
            work.record.given_back = True
        return SettledBatch(batch)

    def _free_room(self, places: Mapping[str, int]) -> None:
        for lane, count in places.items():
            self._pools[lane].settled_count += count
        self._on_room()


class CombinedCommit:
    """Claims made by settle's thread, in one commit with its outcomes.

    At saturation a settlement frees every place that a claim takes. Two commits cost two round trips, and
    the place is empty between them (docs/decisions/050-claims-ride-along.md).
    """

    def __init__(self, intake: Intake, gate: LedgerClaims) -> None:
        self._intake = intake
        self._gate = gate

    def settle(
        self, settlements: Sequence[Settlement], freed: Mapping[str, int]
    ) -> list[bool] | None:
        """Commits the outcomes together with claims for the places that they free. Returns as
        `Ledger.settle`; None, with nothing done, if there is nothing to claim or intake is claiming. Raises
        LedgerUnavailable only when the worker stops."""
        if not self._intake.claiming.acquire(timeout=_WAIT_S):
            return None
        try:
            return self._together(settlements, freed)
        finally:
            self._intake.claiming.release()

    def _together(
        self, settlements: Sequence[Settlement], freed: Mapping[str, int]
    ) -> list[bool] | None:
        works = self._intake.take(freed, self._gate.rides)
        if not works:
            return None
        calls = self._intake.prepared(works)
        try:
            written, answered = self._gate.settle_and_claim(settlements, works)
        except LedgerUnavailable:
            self._intake.abandon(works)
            raise
        if answered is None:  # here the claim would hold up outcomes until the lease is renewed
            self._intake.postpone(works, calls)
        else:
            self._intake.claimed(calls, *answered)
        return written


def _places(works: Sequence[Work]) -> Counter[str]:
    """Returns how many places of each lane the works hold."""
    return Counter([work.delivery.lane for work in works if work.taken])


def settlement_of(work: Work, policy: LanePolicy, luck: Luck = random.random) -> Settlement | None:
    """Returns the work's settlement; None if it was never claimed, or ended at its claim."""
    end = work.end
    if isinstance(end, NotStarted):
        return Settlement(work.delivery, end.event, end.reason, delay_ms=end.delay_ms)
    if (outcome := outcome_of(end)) is None:
        return None
    return after_call(work.delivery, outcome, work.answered_at, policy, luck)
