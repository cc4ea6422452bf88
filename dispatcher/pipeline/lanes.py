"""A lane's bounded pool: so many calls at once, each of one claimed delivery or several.

    take ──▶ may it start? ──▶ begin ──▶ answered ──▶ settle
                                 │           │
                                 │           └─▶ refused: once more, or elsewhere (immediate_retry.py)
                                 └─▶ what must be waited for (mail, a first connection) holds its thread

A thread begins a call and goes on to the next; the answer is told by the thread that reads all answers
(channels/http_client/answer_reader.py), which must not wait, and hands what needs more back to the pool. A
call under way has one of the lane's slots, as many as the policy's `threads`, whichever thread it is with.

Nothing starts here that must not: not past its expires_at, not under a lapsed lease, not while the
worker is stopping. What does not start goes to settle with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from queue import SimpleQueue
from random import SystemRandom
from typing import NamedTuple, Protocol

import structlog

from channels.channel import Call, Channel
from channels.engine import TokenRejected
from channels.http_client.failures import LEASE_LAPSED, WITHDRAWN
from dispatcher.pipeline.immediate_retry import ImmediateRetry
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.work import Finished, Route, Work
from message.delivery import Delivery
from message.outcomes import AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy
from sending.accounts.selector import ACCOUNT_SHUT, AccountSelector
from sending.attempts import note_refusals
from sending.runtime.clock import Clock
from sending.runtime.work_queue import SlottedQueue
from sending.settlement import spread_ms
from sending.withdrawals import take_back, why_withdrawn

log = structlog.get_logger(__name__)

_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.005, 0.5


class LaneEngine(Protocol):
    """What runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> Sequence[AnyOutcome]:
        """One outcome per delivery of the call."""
        ...

    def begin(
        self,
        channel: Channel,
        call: Call,
        timeout_s: float,
        done: Callable[[Sequence[AnyOutcome] | TokenRejected], None],
    ) -> Sequence[AnyOutcome] | None:
        """As `send`; None: `done` is told by another thread, which must not wait."""
        ...

    def renewed(self, channel: Channel, call: Call, timeout_s: float) -> Sequence[AnyOutcome]:
        """A Refused call, made once more with another token."""
        ...


class SendPermit(Protocol):
    """Whether a send may begin now (sending/runtime/lease.py)."""

    def wait_valid(self, term: int, until: Callable[[], bool]) -> bool:
        """True while the lease of that term holds; waits through an outage of the database until it
        holds again. False once a new term began, since what was claimed in the old one is in doubt
        and no longer ours, or when `until` says that waiting is over."""
        ...

    def ends_at(self, term: int) -> float:
        """When the lease of that term ends for whoever calls, monotonic: no first byte leaves later.
        In the past once a new term began."""
        ...


class _Begun(NamedTuple):
    """A call under way."""

    works: Sequence[Work]
    """All that were taken together."""
    starting: Sequence[Work]
    """Those that it carries."""
    begun_at: float
    refused: Call | None = None
    """Its token was: what it was made with."""


class LanePool:
    """One lane's threads and queue. `taken` is written by intake, `returned` by settle."""

    def __init__(
        self,
        lane: Lane,
        policy: LanePolicy,
        routes: Mapping[str, Route],
        accounts: AccountSelector,
        engine: LaneEngine,
        *,
        permit: SendPermit,
        clock: Clock,
        finished: SimpleQueue[Finished],
        reroute: Callable[[Sequence[Delivery]], list[bool]],
        version: str = "",
    ) -> None:
        """`reroute` puts another call on record before it is made; per delivery, whether it did."""
        self.lane = lane
        self.terms = LaneConfig(version, policy, routes, accounts)
        """Exchanged by `adopt`; a stage reads it once for what must go together."""
        self.taken = 0
        self.returned = 0
        self.replaced = 0
        """Threads that died and were replaced."""
        self._engine = engine
        self._permit = permit
        self._clock = clock
        self._finished = finished
        self._queue: SlottedQueue[Sequence[Work] | _Begun | None] = SlottedQueue(policy.threads)
        self._luck = SystemRandom().random
        self._stopping = False
        self._durable = policy.guarantee is not Guarantee.BEST_EFFORT
        """Whether someone else would take up what is given back."""
        self._again = ImmediateRetry(
            self._call,
            refusal=self._refusal,
            reroute=reroute if self._durable else None,
            others_wait=lambda: bool(self._queue),
            monotonic=clock.monotonic,
        )
        self._sizing = threading.Lock()  # guards the three below
        self._threads = 0  # those that are not told to end
        self._spawned = 0
        self._closed = False

    @property
    def busy(self) -> int:
        """Calls under way."""
        return self._queue.busy

    @property
    def repeated(self) -> int:
        """Deliveries that went through the same account again at once."""
        return self._again.repeated

    @property
    def policy(self) -> LanePolicy:
        """What the lane's terms say now."""
        return self.terms.policy

    @property
    def most(self) -> int | None:
        """See `LaneConfig.most`."""
        return self.terms.most

    @property
    def capacity(self) -> int:
        """See `LaneConfig.capacity`."""
        return self.terms.capacity

    @property
    def room(self) -> int:
        """Deliveries that may still be claimed: what is claimed and not settled is bounded."""
        return self.terms.capacity - (self.taken - self.returned)

    def pause_s(self, accounts: Sequence[str]) -> float:
        """How long intake leaves the lane alone when none of these accounts may take a delivery; empty: no
        account at all."""
        wait_s = self.terms.accounts.seconds_until_room(*accounts)
        return min(max(wait_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)

    @property
    def unsettled(self) -> int:
        """Claimed and not yet settled."""
        return self.taken - self.returned

    def start(self) -> None:
        """Start the threads."""
        with self._sizing:
            self._resize(self.terms.policy.threads)

    def adopt(self, terms: LaneConfig) -> None:
        """Follow other terms from now on: what is claimed later acts under them, what is claimed ends under
        its own. Threads too many end when they have taken what stands in the queue before."""
        with self._sizing:
            self.terms = terms
            if self._spawned and not self._closed:
                self._resize(terms.policy.threads)

    def route(self, work: Work) -> Route | None:
        """Bind the delivery to the terms, and choose its account; None where none may take it now."""
        terms = self.terms
        terms.bind(work)
        return terms.choose(work)

    def release(self, work: Work) -> None:
        """Its account was chosen, and nothing will be sent."""
        work.bound.accounts.release(work.chosen[0])

    def put(self, call: Sequence[Work]) -> None:
        """Hand a call's claimed deliveries over; intake keeps to `room`."""
        self._queue.put(call)

    def stop(self) -> None:
        """Begin nothing more: what waits is given back, what has begun ends. Idempotent."""
        self._stopping = True
        self._again.stop()

    def close(self) -> None:
        """End the threads, once nobody puts anything in any more."""
        with self._sizing:
            self._closed = True
            self._resize(0)

    def _resize(self, threads: int) -> None:
        if threads:
            self._queue.resize(threads)
        for _ in range(self._threads, threads):
            self._spawned += 1
            self._spawn(f"{self.lane.name}-{self._spawned - 1}")
        for _ in range(threads, self._threads):
            self._queue.put(None)
        self._threads = threads

    def _spawn(self, name: str) -> None:
        threading.Thread(target=self._serve, args=(name,), name=name, daemon=True).start()

    def _serve(self, name: str) -> None:
        """Serve until told to stop; a thread that dies is replaced and its delivery is in doubt."""
        held: Sequence[Work] | None = None  # what nobody but this thread can end
        seat = self._queue.seat()
        try:
            while (task := self._queue.take(seat)) is not None:
                if isinstance(task, _Begun):
                    held = task.works
                    self._follow(task)
                else:
                    held = task
                    if not self._begin(task):
                        held = None
                        continue
                self._end(held)
                held = None
        except BaseException as exc:  # a dead thread must neither shrink the pool nor keep its work
            log.exception("lane_thread_died", thread=name, cause=repr(exc))
            self.replaced += 1
            if held is not None:
                self._doubt(held, exc)
            self._spawn(name)
        else:
            self._queue.free()

    def _begin(self, works: Sequence[Work]) -> bool:
        """One call for all that may still start, and what follows at once on a definite non-send; False: it
        is under way without this thread."""
        starting = [work for work in works if self._may_start(work)]
        if not starting:
            return True
        channel = starting[0].chosen[1]
        call, timeout_s = self._called(starting)
        begun = _Begun(works, starting, self._clock.monotonic())
        outcomes = self._engine.begin(channel, call, timeout_s, partial(self._answered, begun))
        if outcomes is None:
            return False
        if not self._note(begun, outcomes):
            self._again.follow(starting, begun.begun_at)
        return True

    def _answered(self, begun: _Begun, outcomes: Sequence[AnyOutcome] | TokenRejected) -> None:
        """Told by the thread that reads answers: what may have to wait goes back to the pool."""
        try:
            if isinstance(outcomes, TokenRejected):
                self._queue.urge(begun._replace(refused=outcomes.call))
            elif self._note(begun, outcomes) or not self._again.wanted(begun.starting):
                self._end(begun.works)
            else:
                self._queue.urge(begun)
        except BaseException as exc:
            log.exception("answer_not_noted", lane=self.lane.name, cause=repr(exc))
            self._doubt(begun.works, exc)

    def _follow(self, begun: _Begun) -> None:
        """What is left to do of a call that was answered."""
        starting, refused = begun.starting, begun.refused
        if refused is not None:
            account, channel = starting[0].chosen
            timeout_s = starting[0].bound.limits[account.name].total
            if self._note(begun, self._engine.renewed(channel, refused, timeout_s)):
                return
        self._again.follow(starting, begun.begun_at)

    def _end(self, works: Sequence[Work]) -> None:
        self._queue.free()
        for work in works:
            if type(work.outcome) is NotSent and work.outcome.code == WITHDRAWN:
                take_back(work, self._too_late(work))
            self._finished.put(work)

    def _doubt(self, works: Sequence[Work], cause: BaseException) -> None:
        """Nobody knows what became of those that have no end."""
        for work in works:
            if work.event is None and work.outcome is None:
                work.outcome = Unknown(code="thread_died", detail=repr(cause))
        self._end(works)

    def _call(self, works: Sequence[Work]) -> bool:
        """Make the call and wait for its answer; whether all of it was accepted."""
        (call, timeout_s), channel = self._called(works), works[0].chosen[1]
        begun = _Begun(works, works, self._clock.monotonic())
        for work in works:
            work.outcome = None  # what was answered before says nothing of this call
        return self._note(begun, self._engine.send(channel, call, timeout_s))

    def _called(self, works: Sequence[Work]) -> tuple[Call, float]:
        """Returns the call, and the seconds that it may take in all."""
        now = self._clock.now_ms()
        for work in works:
            work.started_at = now
        deliveries, account = [work.delivery for work in works], works[0].chosen[0]
        limits = works[0].bound.limits[account.name]
        steps, not_after = limits.steps, self._not_after(works)
        ask = None if steps is None else partial(self._withdrawn, works)
        call = Call(account, deliveries, not_after=not_after, steps=steps, withdrawn=ask)
        return call, limits.total

    def _note(self, begun: _Begun, outcomes: Sequence[AnyOutcome]) -> bool:
        """Keep what was answered; whether all of it was accepted."""
        works = begun.starting
        accounts, account = works[0].bound.accounts, works[0].chosen[0]
        now = self._clock.now_ms()
        for work, outcome in zip(works, outcomes, strict=True):
            work.outcome = outcome
            work.answered_at = now
        accepted = accounts.record(account, outcomes, begun.begun_at)
        if not accepted:
            note_refusals(works)
        return accepted

    def _not_after(self, works: Sequence[Work]) -> float:
        """A thread may sleep between the lease's question and the first byte, too."""
        if not self._durable:
            return inf
        return min([self._permit.ends_at(work.term) for work in works])

    def _withdrawn(self, works: Sequence[Work]) -> str:
        """Why a call under way must not be finished any more; empty: it may. As the lane stops it is given
        back: what would be the provider's only then may be answered after the drain."""
        return why_withdrawn(
            map(self._too_late, works),
            lapsed=lambda: self._clock.monotonic() >= self._not_after(works),
        )

    def _may_start(self, work: Work) -> bool:
        """False for one that must not start, with the reason on it, or that can never be sent."""
        refusal = self._refusal(work)
        if refusal is None and self._durable and not work.bound.accounts.passes(work.chosen[0]):
            refusal = self._shut(work)
        if refusal is not None:
            work.event, work.reason = refusal
            self.release(work)
            return False
        code, _, detail = work.refused.partition(": ")
        if code:
            work.outcome = Rejected(code, detail)
            self.release(work)
        return not code

    def _refusal(self, work: Work) -> tuple[Event, str] | None:
        """Why this delivery must not start, or None. The lease is the last question: it is the one
        that can change while a thread sleeps."""
        reason = self._too_late(work)
        if reason is not None or not self._durable:
            return reason
        if self._permit.wait_valid(work.term, lambda: self._too_late(work) is not None):
            return None
        return self._too_late(work) or (Event.NOT_SENT, LEASE_LAPSED)

    def _shut(self, work: Work) -> tuple[Event, str]:
        """Its account was shut since it was chosen: it goes back to the ledger, for whichever account may
        send it first."""
        accounts, account = work.bound.accounts, work.chosen[0]
        wait_s = accounts.opens_in_s(work.delivery, account)
        spread = spread_ms(work.bound.policy.retry, 1, self._luck()) if wait_s else 0
        left_ms = max(work.delivery.expires_at - self._clock.now_ms(), 0)
        work.delay_ms = min(int(wait_s * 1_000) + spread, left_ms)
        return Event.SHUT, ACCOUNT_SHUT

    def _too_late(self, work: Work) -> tuple[Event, str] | None:
        if self._stopping and self._durable:
            return Event.GIVEN_BACK, "given_back"
        if self._clock.now_ms() >= work.delivery.expires_at:
            return Event.TTL, "ttl_in_queue"
        return None
