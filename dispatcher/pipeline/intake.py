"""Intake: from screened deliveries to calls in the lanes' queues, claimed just in time.

It claims only what a lane has room for and an account may take, so a slow lane leaves its records
unclaimed and holds up nobody else. Which account a delivery goes through, and which other deliveries
share its call, is decided before the claim, since the claim puts it on record. Who takes and claims holds
`claiming`: this stage's thread, or settle's when claims ride along with its commit
(`dispatcher.pipeline.settle.CombinedCommit`).
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
from dispatcher.pipeline.binding import waits_for
from dispatcher.pipeline.claims import ClaimStrategy
from dispatcher.pipeline.expand import drained
from dispatcher.pipeline.gates import SendGates
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import GIVEN_UP, SEND, Finished, HandOver, Hold, PartitionState, Work
from idempotency.ledger import LedgerUnavailable
from message.reasons import RECEIVER_LIMIT
from policy.schema import Guarantee
from sending.runtime.clock import Clock

log = structlog.get_logger(__name__)

CLAIM_BATCH = 500
"""Deliveries in one claim statement, at most."""
_IDLE_S = 0.5
_NONE_FREED: Final[Mapping[str, int]] = MappingProxyType({})


class Intake:
    """Owns what is offered and not yet claimed; under `claiming`."""

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
        """`delays`: per (account, receiver), for how many milliseconds its provider's limit holds it."""
        self.beat = clock.monotonic()
        """When the loop last went round; for the stuck detector."""
        self.on_taken: Callable[[], None] = lambda: None
        """Called when of what was offered only one lane-full is left; the screen's `wanted`."""
        self.claiming = threading.Lock()
        self._pools = pools
        self._gate = gate
        self._delays = delays
        self._report = report
        self._clock = clock
        self._finished = finished
        self._gates = gates
        self._inbox: SimpleQueue[list[Work]] = SimpleQueue()
        self._ready: dict[str, deque[Work]] = {name: deque() for name in pools}
        self._since: dict[str, float] = {}
        """Since when a lane has something ready; for lanes that wait to fill their calls."""
        self._offered = dict.fromkeys(pools, 0)
        """Written by the screen's thread."""
        self._taken = dict.fromkeys(pools, 0)
        """Written under `claiming`: by this stage's thread, or by settle's."""
        self._wake = threading.Event()
        self._pause_s = _IDLE_S
        self._stopping = False
        self._closing = False
        self._purging = False
        """Set by `leaving` in the source's thread; cleared by `_receive`, under
        `claiming`, before it looks."""
        self._turn = 0

    def offer(self, works: list[Work]) -> None:
        """Deliveries from the screen."""
        for work in works:
            self._offered[work.delivery.lane] += 1
        self._inbox.put(works)
        self._wake_for_room()

    def waiting(self, lane: str) -> int:
        """Offered deliveries of a lane that are not yet claimed."""
        return self._offered[lane] - self._taken[lane]

    def leaving(self) -> None:
        """A partition is being revoked: what is offered of it is given up, room or no room."""
        self._purging = True
        self._wake.set()

    def room_made(self) -> None:
        """Settle freed places in some lane."""
        self._wake_for_room()

    def stop(self) -> None:
        """Claim nothing more: what is offered, now or later, is given up. Idempotent."""
        self._stopping = True
        self._wake.set()

    def close(self) -> None:
        """End once everything offered is dealt with: the screen offers nothing any more."""
        self._stopping = self._closing = True
        self._wake.set()

    def run(self) -> None:
        """Until `close`."""
        while not self._closing:
            self.run_once()
        with self.claiming:
            self._give_up_rest()

    def run_once(self) -> None:
        """One round: receive, take what fits, claim, hand over."""
        self._wake.wait(self._pause_s)
        self._wake.clear()
        with self.claiming:
            self._pause_s = _IDLE_S
            self.beat = self._clock.monotonic()
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
        """Deliveries to be claimed now, from every lane that has room, `freed` places of it as good as
        free; of the lanes that `only` names. Lanes take turns at going first."""
        self._receive()
        if self._stopping:
            return []
        taken: list[Work] = []
        runs_low = False
        names = list(self._ready)
        self._turn = (self._turn + 1) % max(len(names), 1)
        for name in names[self._turn :] + names[: self._turn]:
            if self._ready[name] and only(name) and not self._fills_up(name):
                found = self._take(name, CLAIM_BATCH - len(taken), freed.get(name, 0))
                taken.extend(found)
                runs_low |= bool(found) and self._runs_low(name)
        if runs_low:
            self.on_taken()
        return taken

    def prepared(self, works: list[Work]) -> list[list[Work]]:
        """What was taken, as the calls it is going to be; it holds its places from now on."""
        self._hold_back(works)
        calls = calls_of(works, self._pools)
        for work in works:
            work.taken = True
            self._pools[work.delivery.lane].claimed_count += 1
        return calls

    def admit(self, works: list[Work], calls: list[list[Work]]) -> None:
        """Claim what was prepared, and hand it over."""
        try:
            to_send, ended = self._gate.admit(works)
        except LedgerUnavailable:
            self.abandon(works)
            return
        self.claimed(calls, to_send, ended)

    def claimed(self, calls: list[list[Work]], to_send: list[Work], ended: list[Work]) -> None:
        """Hand over what was won, and pass on what ended."""
        self._report.claimed(to_send)
        self._hand_over(calls, to_send)
        for work in ended:
            self._pools[work.delivery.lane].release(work)
            self._finished.put(work)
        if self._gates is not None and ended:
            self._gates.unclaimed(ended)

    def abandon(self, works: Sequence[Work]) -> None:
        """What was prepared cannot be claimed: the worker stops."""
        for work in works:
            self._pools[work.delivery.lane].release(work)
            self._give_up(work)

    def _wake_for_room(self) -> None:
        """Where nothing waits, or claims that rode along took all the room there was, this stage is left
        asleep: awake it would only hold `claiming` up. Who makes the other of the two looks here too."""
        lanes = self._pools.items()
        if self._stopping or any(self.waiting(name) and pool.room > 0 for name, pool in lanes):
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
        """Those whose partition is leaving are given up: whoever gets it reads them again."""
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
        """Whether the lane waits a moment longer for deliveries that could share a call."""
        terms = self._pools[lane].terms
        if terms.batch == 1 or len(self._ready[lane]) >= terms.batch:
            return False
        left_s = self._since[lane] + terms.linger_s - self._clock.monotonic()
        if left_s > 0:
            self._pause_s = min(self._pause_s, left_s)
        return left_s > 0

    def _runs_low(self, lane: str) -> bool:
        """The screen asks Redis for a batch at a time: it is called for many rather than for each."""
        return self.waiting(lane) <= self._pools[lane].capacity

    def _take(self, lane: str, limit: int, freed: int) -> list[Work]:
        """As many as the lane has room for and an account may take."""
        pool, ready = self._pools[lane], self._ready[lane]
        taken: list[Work] = []
        room = min(pool.room + freed, limit)
        passed: list[Work] = []
        shut: set[tuple[str, ...]] = set()
        while ready and len(taken) < room:
            work = ready.popleft()
            if work.record.assignment.state is not PartitionState.OWNED:
                self._give_up(work)
                self._taken[lane] += 1
                continue
            closed = shut and waits_for(work, pool.terms) in shut
            work.route = None if closed else pool.route(work)
            if work.route is not None:
                taken.append(work)
                continue
            passed.append(work)
            if closed:
                continue
            accounts = waits_for(work, pool.terms)
            self._pause_s = min(self._pause_s, pool.pause_s(accounts))
            if not accounts:
                break
            shut.add(accounts)  # asked once a round: every wake-up for any lane comes by here
        # One whose accounts, named or left by its template, may not send now holds up nobody else.
        ready.extendleft(reversed(passed))
        self._taken[lane] += len(taken)
        return taken

    def _hold_back(self, works: list[Work]) -> None:
        """What a gate holds or drops; and what its provider would drop in silence waits instead."""
        if self._gates is not None:
            self._gates.judge(works)
        going = [work for work in works if work.intent is SEND]
        pairs = [(work.chosen[0].name, work.delivery.receiver) for work in going]
        for work, delay_ms in zip(going, self._delays(pairs), strict=True):
            if delay_ms:
                work.intent = Hold(delay_ms, RECEIVER_LIMIT)

    def _hand_over(self, calls: list[list[Work]], to_send: list[Work]) -> None:
        """Put the calls into their lanes' queues, without what the claim did not win."""
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
        """Unclaimed and staying so: settle only keeps the record's offset from passing."""
        work.end = GIVEN_UP
        self._finished.put(work)

    def _give_up_rest(self) -> None:
        self._receive()
        for lane, ready in self._ready.items():
            while ready:
                self._give_up(ready.popleft())
                self._taken[lane] += 1
