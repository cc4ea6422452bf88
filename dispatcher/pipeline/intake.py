"""Intake: claims deliveries just in time and puts their calls into the lanes' queues.

It claims no more than a lane has room for and an account may take. So a slow lane leaves its records
unclaimed and holds up no other lane. Account and call are chosen before the claim, which puts them on
record. A thread that takes and claims holds `claiming`: that of `Intake.run`, or that of `Settle.run` for
claims in its commit (`dispatcher.pipeline.settle.CombinedCommit`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from types import MappingProxyType
from typing import Final

import structlog

from dispatcher.pipeline.batching import calls_of
from dispatcher.pipeline.binding import bind, choose, waits_for
from dispatcher.pipeline.claims import ClaimStrategy
from dispatcher.pipeline.expand import drained
from dispatcher.pipeline.gates import SendGates
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import (
    GIVEN_UP,
    SEND,
    Finished,
    HandOver,
    Hold,
    KafkaRecord,
    PartitionState,
    Work,
)
from idempotency.ledger import LedgerUnavailable
from message.reasons import RECEIVER_LIMIT
from policy.schema import Guarantee
from sending.runtime.clock import Clock

log = structlog.get_logger(__name__)

CLAIM_BATCH = 500
"""Most deliveries in one claim statement."""
CLAIM_BYTES: Final = 8 << 20
"""Bytes of envelopes from which on a claim takes no further delivery: a statement of some hundred MiB takes
longer than the ledger waits for an answer, and would be repeated for ever."""
_IDLE_S = 0.5
_NONE_FREED: Final[Mapping[str, int]] = MappingProxyType({})


class Intake:
    """Owns the offered deliveries until their claim, under `claiming`."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        gate: ClaimStrategy,
        delays: Callable[[Sequence[tuple[str, str]]], list[int]] = lambda batch: [0] * len(batch),
        *,
        report: WorkerTelemetry,
        clock: Clock,
        finished: SimpleQueue[Finished],
        gates: SendGates | None = None,
    ) -> None:
        """`delays`: per (account, receiver), the milliseconds for which its provider's limit holds it."""
        self.beat = clock.monotonic()
        """Monotonic time of the loop's last round; for the stuck detector."""
        self.on_taken: Callable[[], None] = lambda: None
        """Called when only one lane-full of the offered deliveries is left; `ExpandStage.wanted`."""
        self.claiming = threading.Lock()
        self._pools = pools
        self._gate = gate
        self._delays = delays
        self._report = report
        self._clock = clock
        self._finished = finished
        self._gates = gates
        self._inbox: SimpleQueue[list[Work]] = SimpleQueue()
        self._postponed: SimpleQueue[tuple[list[Work], list[list[Work]]]] = SimpleQueue()
        """Prepared deliveries with their calls, from `postpone`."""
        self._ready: dict[str, deque[Work]] = {name: deque() for name in pools}
        self._since: dict[str, float] = {}
        """Monotonic time since when a lane has deliveries ready; for lanes that linger to fill calls."""
        self._offered = dict.fromkeys(pools, 0)
        """Written by `offer`, in the thread of `ExpandStage`."""
        self._taken = dict.fromkeys(pools, 0)
        """Written under `claiming`: in the thread of `run`, or in settle's by `CombinedCommit`."""
        self._wake = threading.Event()
        self._pause_s = _IDLE_S
        self._stopping = False
        self._closing = False
        self._purging = False
        """Set by `leaving` in the source's thread; cleared by `_receive` before it purges, under
        `claiming`."""
        self._turn = 0

    def offer(self, works: list[Work]) -> None:
        """Takes deliveries from `ExpandStage`."""
        for work in works:
            self._offered[work.delivery.lane] += 1
        self._inbox.put(works)
        self._wake_for_room()

    def waiting(self, lane: str) -> int:
        """Returns how many offered deliveries of a lane are not yet claimed."""
        return self._offered[lane] - self._taken[lane]

    def leaving(self) -> None:
        """A partition is being revoked: its offered deliveries are given up, even without room."""
        self._purging = True
        self._wake.set()

    def room_made(self) -> None:
        """Settle freed places in some lane."""
        self._wake_for_room()

    def stop(self) -> None:
        """Stops claiming; gives up all that is offered, now or later. Idempotent."""
        self._stopping = True
        self._wake.set()

    def close(self) -> None:
        """Ends `run` after all that was offered is given up; `ExpandStage` has ended."""
        self._stopping = self._closing = True
        self._wake.set()

    def run(self) -> None:
        """Works until `close`."""
        while not self._closing:
            self.run_once()
        with self.claiming:
            self._give_up_rest()

    def run_once(self) -> None:
        """One round: receive, take, claim, hand over."""
        self._wake.wait(self._pause_s)
        self._wake.clear()
        with self.claiming:
            self._pause_s = _IDLE_S
            self.beat = self._clock.monotonic()
            if not self._stopping:
                for works, calls in drained(self._postponed):
                    self.admit(works, calls)
            while works := self.take():
                self.admit(works, self.prepared(works))
                self.beat = self._clock.monotonic()
            if self._stopping:
                self._give_up_rest()

    def take(
        self,
        freed: Mapping[str, int] = _NONE_FREED,
        only: Callable[[str], bool] = lambda lane: True,
    ) -> list[Work]:
        """Returns deliveries to claim now, from the lanes of `only` that have room. `freed`: places of each
        lane that count as room already. Lanes take turns at going first."""
        self._receive()
        if self._stopping:
            return []
        taken: list[Work] = []
        runs_low = False
        space = CLAIM_BYTES
        names = list(self._ready)
        self._turn = (self._turn + 1) % max(len(names), 1)
        for name in names[self._turn :] + names[: self._turn]:
            if self._pools[name].paused:
                continue
            if self._ready[name] and only(name) and not self._fills_up(name):
                found = self._take(name, CLAIM_BATCH - len(taken), space, freed.get(name, 0))
                taken.extend(found)
                space -= sum({id(work.record): work.record.size for work in found}.values())
                runs_low |= bool(found) and self._runs_low(name)
        if runs_low:
            self.on_taken()
        return taken

    def prepared(self, works: list[Work]) -> list[list[Work]]:
        """Returns the works divided into calls; each work holds a place of its lane from now on."""
        self._hold_back(works)
        calls = calls_of(works, self._pools)
        for work in works:
            work.taken = True
            self._pools[work.delivery.lane].claimed_count += 1
        return calls

    def admit(self, works: list[Work], calls: list[list[Work]]) -> None:
        """Claims prepared deliveries and hands over the calls."""
        try:
            to_send, ended = self._gate.admit(works)
        except LedgerUnavailable:
            self.abandon(works)
            return
        self.claimed(calls, to_send, ended)

    def postpone(self, works: list[Work], calls: list[list[Work]]) -> None:
        """Leaves the claim of prepared deliveries to the thread of `run`, which may wait for the ledger."""
        self._postponed.put((works, calls))
        self._wake.set()

    def claimed(self, calls: list[list[Work]], to_send: list[Work], ended: list[Work]) -> None:
        """Hands over the won deliveries to their lanes and the ended ones to settle."""
        self._report.claimed(to_send)
        self._hand_over(calls, to_send)
        for work in ended:
            self._pools[work.delivery.lane].release(work)
            self._finished.put(work)
        if self._gates is not None and ended:
            self._gates.unclaimed(ended)

    def abandon(self, works: Sequence[Work]) -> None:
        """Gives up prepared deliveries: the worker stops before their claim."""
        for work in works:
            self._pools[work.delivery.lane].release(work)
            self._give_up(work)

    def _wake_for_room(self) -> None:
        """Wakes `run` if a lane has both deliveries and room; without them it would only hold `claiming`.
        Both `offer` and `room_made` call this, so no pair is missed."""
        lanes = self._pools.items()
        if self._stopping or any(
            self.waiting(name) and pool.room > 0 and not pool.paused for name, pool in lanes
        ):
            self._wake.set()

    def _receive(self) -> None:
        if self._purging:
            self._purging = False
            self._purge()
        for works in drained(self._inbox):
            for work in works:
                self._make_ready(work)

    def _make_ready(self, work: Work) -> None:
        lane = work.delivery.lane
        if work.record.assignment.state is not PartitionState.OWNED:
            self._taken[lane] += 1
            self._give_up(work)
            return
        if not self._ready[lane]:
            self._since[lane] = self._clock.monotonic()
        self._ready[lane].append(work)

    def _purge(self) -> None:
        """Gives up deliveries of a partition being revoked; its next owner reads them again."""
        for lane, ready in self._ready.items():
            kept = [work for work in ready if work.record.assignment.state is PartitionState.OWNED]
            if len(kept) == len(ready):
                continue
            for work in ready:
                if work.record.assignment.state is not PartitionState.OWNED:
                    self._give_up(work)
            self._taken[lane] += len(ready) - len(kept)
            self._ready[lane] = deque(kept)

    def _fills_up(self, lane: str) -> bool:
        """Returns whether the lane lingers for more deliveries that could share a call."""
        terms = self._pools[lane].terms
        if terms.batch == 1 or len(self._ready[lane]) >= terms.batch:
            return False
        left_s = self._since[lane] + terms.linger_s - self._clock.monotonic()
        if left_s > 0:
            self._pause_s = min(self._pause_s, left_s)
        return left_s > 0

    def _runs_low(self, lane: str) -> bool:
        """Returns whether `ExpandStage` must offer more: at most one lane-full waits."""
        return self.waiting(lane) <= self._pools[lane].capacity

    def _take(self, lane: str, limit: int, space: int, freed: int) -> list[Work]:
        """Returns as many deliveries as the lane has room for and an account may take, until their
        envelopes fill `space` bytes. Reads the lane's terms once: `PolicyReload` may replace them
        meanwhile, and an account that may take nothing has to be asked for under the terms that named it.
        """
        pool, ready = self._pools[lane], self._ready[lane]
        terms = pool.terms
        taken: list[Work] = []
        room = min(pool.room + freed, limit)
        passed: list[Work] = []
        shut: set[tuple[str, ...]] = set()
        last: KafkaRecord | None = None
        while ready and len(taken) < room and space > 0:
            work = ready.popleft()
            if work.record.assignment.state is not PartitionState.OWNED:
                self._give_up(work)
                self._taken[lane] += 1
                continue
            bind(work, terms)
            closed = shut and waits_for(work, terms) in shut
            work.route = None if closed else choose(work, terms)
            if work.route is not None:
                taken.append(work)
                # The deliveries of one record follow one another and share its envelope.
                if work.record is not last:
                    last = work.record
                    space -= last.size
                continue
            passed.append(work)
            if closed:
                continue
            accounts = waits_for(work, terms)
            self._pause_s = min(self._pause_s, terms.pause_s(accounts))
            if not accounts:
                break
            shut.add(accounts)  # asked once a round, since each wake-up runs this for every lane
        # A delivery whose accounts may not send now does not hold up the others.
        ready.extendleft(reversed(passed))
        self._taken[lane] += len(taken)
        return taken

    def _hold_back(self, works: list[Work]) -> None:
        """Applies the gates, then the providers' limits per receiver: a provider would drop silently what
        exceeds them."""
        if self._gates is not None:
            self._gates.judge(works)
        going = [work for work in works if work.intent is SEND]
        pairs = [(work.chosen[0].name, work.delivery.receiver) for work in going]
        delays, now = self._delays(pairs), self._clock.now_ms()
        for work, delay_ms in zip(going, delays, strict=True):
            if delay_ms:
                work.intent = Hold(now + delay_ms, RECEIVER_LIMIT)

    def _hand_over(self, calls: list[list[Work]], to_send: list[Work]) -> None:
        """Puts the calls into their lanes' queues, without deliveries that the claim did not win."""
        if len(to_send) < sum(map(len, calls)):
            won = set(map(id, to_send))
            calls = [kept for call in calls if (kept := [w for w in call if id(w) in won])]
        for call in calls:
            pool = self._pools[call[0].delivery.lane]
            if pool.policy.guarantee is Guarantee.BEST_EFFORT:
                for work in call:
                    self._finished.put(HandOver(work.record))
            pool.put(call)

    def _give_up(self, work: Work) -> None:
        """Ends an unclaimed delivery; completion keeps its record's offset from passing."""
        work.end = GIVEN_UP
        self._finished.put(work)

    def _give_up_rest(self) -> None:
        for works, _ in drained(self._postponed):
            self.abandon(works)
        self._receive()
        for lane, ready in self._ready.items():
            while ready:
                self._give_up(ready.popleft())
                self._taken[lane] += 1
