"""A lane's bounded pool of calls, each with one or several claimed deliveries.

    take ──▶ may it start? ──▶ begin ──▶ answered ──▶ settle
                                 │           │
                                 │           └─▶ refused: again, or by another account (immediate_retry.py)
                                 └─▶ a blocking call (mail, a first connection) holds its thread

A thread begins a call and goes on to the next. The answer reader (channels/http_client/answer_reader.py)
ends the call; it must not wait, so it hands a call with more work back to the pool. Each call under way has
one of the lane's slots, as many as the policy's `threads`.

A delivery does not start past its expires_at, under a lapsed lease, while the lane is paused, or while the
worker stops. It then goes to settle with the reason. Without a ledger it waits in its thread while the lane
is paused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from random import SystemRandom
from typing import NamedTuple, Protocol

import msgspec
import structlog

from channels.channel import Call, Channel
from channels.engine import TokenRejected
from channels.http_client.failures import LEASE_LAPSED
from dispatcher.pipeline.immediate_retry import ImmediateRetry
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.work import Finished, Refuse, Work
from message.delivery import Delivery
from message.outcomes import AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy
from sending.accounts.receiver_limits import Delays
from sending.accounts.selector import ACCOUNT_SHUT
from sending.attempts import note_refusals
from sending.call_pool import CallPool, SendPermit
from sending.endings import LANE_PAUSED, NotStarted
from sending.runtime.clock import Clock
from sending.runtime.work_queue import SlottedQueue
from sending.settlement import spread_ms

log = structlog.get_logger(__name__)

_PAUSED_LOOK_S = 0.2


class LaneEngine(Protocol):
    """Runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> Sequence[AnyOutcome]:
        """Returns one outcome per delivery of the call."""
        ...

    def begin(
        self,
        channel: Channel,
        call: Call,
        timeout_s: float,
        done: Callable[[Sequence[AnyOutcome] | TokenRejected], None],
    ) -> Sequence[AnyOutcome] | None:
        """As `send`; None if another thread will call `done`, which must not wait."""
        ...

    def with_new_token(self, channel: Channel, call: Call) -> Call | Sequence[AnyOutcome]:
        """Returns a call whose token was rejected with another token; outcomes if none is to be had."""
        ...

    def send_renewed(self, channel: Channel, call: Call, timeout_s: float) -> Sequence[AnyOutcome]:
        """Makes the call that `with_new_token` returned."""
        ...


class _Begun(NamedTuple):
    """A call under way."""

    works: Sequence[Work]
    """The works that were taken together."""
    starting: Sequence[Work]
    """The works that the call carries."""
    begun_at: float
    refused: Call | None = None
    """The call as it was made, if its token was rejected."""


class LanePool(CallPool[Work]):
    """One lane's threads and queue. `Intake.prepared` writes `claimed_count`, `Settle._free_room`
    `settled_count`."""

    def __init__(
        self,
        lane: Lane,
        terms: LaneConfig,
        engine: LaneEngine,
        *,
        permit: SendPermit,
        clock: Clock,
        finished: SimpleQueue[Finished],
        reroute: Callable[[Sequence[Delivery]], list[bool]],
        delays: Delays,
    ) -> None:
        """`reroute` puts another call on record before it is made; returns per delivery whether it did.
        `delays` is asked before that call; intake asks before the first."""
        leased = terms.policy.guarantee is not Guarantee.BEST_EFFORT
        super().__init__(lane.name, permit=permit, clock=clock, leased=leased)
        self.lane = lane
        self.terms = terms
        """Exchanged by `adopt`; a stage reads it once for what must go together."""
        self.claimed_count = 0
        self.settled_count = 0
        self._engine = engine
        self._finished = finished
        self._queue: SlottedQueue[Sequence[Work] | _Begun | None] = SlottedQueue(
            terms.policy.threads
        )
        self._luck = SystemRandom().random
        self._again = ImmediateRetry(
            self._call,
            refusal=self._refusal,
            reroute=reroute if leased else None,
            delays=delays,
            others_wait=lambda: bool(self._queue),
            monotonic=clock.monotonic,
        )
        self._closed = False  # guarded by _sizing

    @property
    def busy(self) -> int:
        """Calls under way."""
        return self._queue.busy

    @property
    def queued(self) -> int:
        """Calls that wait for a thread or a slot."""
        return len(self._queue)

    @property
    def repeated(self) -> int:
        """Deliveries that went through the same account again at once."""
        return self._again.repeated

    @property
    def policy(self) -> LanePolicy:
        """The lane's policy now."""
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
        """Number of deliveries that may still be claimed."""
        return self.terms.capacity - (self.claimed_count - self.settled_count)

    @property
    def unsettled(self) -> int:
        """Number of deliveries claimed and not yet settled."""
        return self.claimed_count - self.settled_count

    def start(self) -> None:
        """Starts the threads."""
        with self._sizing:
            self._follow_size(self.terms.policy.threads)

    def adopt(self, terms: LaneConfig) -> None:
        """Replaces the terms for later claims; claimed deliveries keep theirs. Surplus threads end after
        the calls that were queued before."""
        with self._sizing:
            self.terms = terms
            if self._spawned and not self._closed:
                self._follow_size(terms.policy.threads)

    def release(self, work: Work) -> None:
        """Gives back the account's permit: nothing will be sent."""
        work.bound.accounts.release(work.chosen[0])

    def put(self, call: Sequence[Work]) -> None:
        """Queues a call's claimed deliveries; intake keeps to `room`."""
        self._queue.put(call)

    def stop(self) -> None:
        """Begins nothing more: waiting deliveries are given back, begun calls end. Idempotent."""
        self._stopping = True
        self._again.stop()

    def close(self) -> None:
        """Ends the threads; called after the last `put`."""
        with self._sizing:
            self._closed = True
            self._resize(0)

    def _follow_size(self, threads: int) -> None:
        self._queue.resize(threads)
        self._resize(threads)

    def _end_thread(self) -> None:
        self._queue.put(None)

    def _serve(self, name: str) -> None:
        """Serves until `_end_thread`; a thread that dies is replaced and its deliveries are in doubt."""
        held: Sequence[Work] | None = None  # works that only this thread can end
        waiter = self._queue.waiter()
        try:
            while (task := self._queue.take(waiter)) is not None:
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
            self._replace(name)
        else:
            self._queue.free()

    def _begin(self, works: Sequence[Work]) -> bool:
        """Starts one call for the works that may start, and retries at once after a definite non-send.
        Returns True if it has ended, False if the answer reader will end it."""
        starting = self._starting(works)
        if not starting:
            return True
        account, channel = works[0].chosen
        limits = works[0].bound.limits[account.name]
        call = self._call_for(starting, limits)
        begun = _Begun(works, starting, self._clock.monotonic())
        outcomes = self._engine.begin(channel, call, limits.total, partial(self._answered, begun))
        if outcomes is None:
            return False
        if not self._note(begun, outcomes):
            self._again.follow(starting, begun.begun_at)
        return True

    def _answered(self, begun: _Begun, outcomes: Sequence[AnyOutcome] | TokenRejected) -> None:
        """Ends a call in the answer reader's thread; a call that may have to wait goes back to the pool."""
        try:
            if isinstance(outcomes, TokenRejected):
                self._queue.put_first(begun._replace(refused=outcomes.call))
            elif self._note(begun, outcomes) or not self._again.wanted(begun.starting):
                self._end(begun.works)
            else:
                self._queue.put_first(begun)
        except BaseException as exc:
            log.exception("answer_not_noted", lane=self.lane.name, cause=repr(exc))
            self._doubt(begun.works, exc)

    def _follow(self, begun: _Begun) -> None:
        """Does the rest of an answered call: a new token, or retries."""
        starting = begun.starting
        if begun.refused is not None:
            found = self._engine.with_new_token(starting[0].chosen[1], begun.refused)
            if isinstance(found, Call):
                # The call waited for a thread and for its token.
                starting = self._starting(starting)
                if not starting:
                    return
                found = self._renewed(starting, found.token)
            if self._note(begun._replace(starting=starting), found):
                return
        self._again.follow(starting, begun.begun_at)

    def _renewed(self, works: Sequence[Work], token: str) -> Sequence[AnyOutcome]:
        """Makes a call with a new token and waits for its answer. Returns its outcomes."""
        account, channel = works[0].chosen
        limits = works[0].bound.limits[account.name]
        call = msgspec.structs.replace(self._call_for(works, limits), token=token)
        return self._engine.send_renewed(channel, call, limits.total)

    def _end(self, works: Sequence[Work]) -> None:
        self._queue.free()
        for work in works:
            if type(work.end) is NotSent:
                self._take_back(work)
            self._finished.put(work)

    def _doubt(self, works: Sequence[Work], cause: BaseException) -> None:
        """Ends the works without an end as Unknown."""
        for work in works:
            if work.end is None:
                work.end = Unknown(code="thread_died", detail=repr(cause))
        self._end(works)

    def _call(self, works: Sequence[Work]) -> bool:
        """Makes the call and waits for its answer. Returns whether all of it was accepted."""
        account, channel = works[0].chosen
        limits = works[0].bound.limits[account.name]
        call = self._call_for(works, limits, waits=True)
        begun = _Begun(works, works, self._clock.monotonic())
        for work in works:
            work.end = None  # the end of the call before
        return self._note(begun, self._engine.send(channel, call, limits.total))

    def _note(self, begun: _Begun, outcomes: Sequence[AnyOutcome]) -> bool:
        """Writes the outcomes on the works. Returns whether all were accepted."""
        works = begun.starting
        accounts, account = works[0].bound.accounts, works[0].chosen[0]
        now = self._clock.now_ms()
        for work, outcome in zip(works, outcomes, strict=True):
            work.end = outcome
            work.answered_at = now
        accepted = accounts.record(account, outcomes, begun.begun_at)
        if not accepted:
            note_refusals(works)
        return accepted

    def _starting(self, works: Sequence[Work]) -> list[Work]:
        """Returns the works of one call that may start; writes the end of the others."""
        shut = self.leased and not works[0].bound.accounts.still_allowed(works[0].chosen[0])
        return [work for work in works if self._may_start(work, shut)]

    def _may_start(self, work: Work, shut: bool) -> bool:
        """Returns whether the delivery may start; writes its end if not. `shut`: its account was shut since
        it was chosen."""
        refusal: NotStarted | Rejected | None = self._refusal(work)
        if refusal is None and shut:
            refusal = self._shut(work)
        if refusal is None and type(work.intent) is Refuse:
            code, _, detail = work.intent.reason.partition(": ")
            refusal = Rejected(code, detail, before_call=True)
        if refusal is None:
            return True
        work.end = refusal
        self.release(work)
        return False

    def _refusal(self, work: Work) -> NotStarted | None:
        """Returns why the delivery must not start; None if it may. Asks the lease last: it can change while
        a thread sleeps."""
        reason = self._too_late(work) if self.leased else self._held_while_paused(work)
        if reason is not None or not self.leased:
            return reason
        if self._permit.wait_valid(work.term, lambda: self._too_late(work) is not None):
            return None
        return self._too_late(work) or NotStarted(Event.NOT_SENT, LEASE_LAPSED)

    def _held_while_paused(self, work: Work) -> NotStarted | None:
        """Waits while the lane is paused: without a ledger nothing else keeps the delivery. Returns why it
        must not start; None if it may."""
        while (late := self._too_late(work)) is None and self.paused:
            if self._stopping:
                return NotStarted(Event.NOT_SENT, LANE_PAUSED)
            time.sleep(_PAUSED_LOOK_S)
        return late

    def _shut(self, work: Work) -> NotStarted:
        """Returns the end of a delivery whose account was shut since it was chosen: it goes back to the
        ledger, for the first account that may send it."""
        accounts, account = work.bound.accounts, work.chosen[0]
        wait_s = accounts.opens_in_s(work.delivery, account)
        spread = spread_ms(work.bound.policy.retry, 1, self._luck()) if wait_s else 0
        left_ms = max(work.delivery.expires_at - self._clock.now_ms(), 0)
        return NotStarted(Event.SHUT, ACCOUNT_SHUT, min(int(wait_s * 1_000) + spread, left_ms))

    def _too_late(self, work: Work) -> NotStarted | None:
        if self._stopping and self.leased:
            return NotStarted(Event.GIVEN_BACK, "given_back")
        if self._clock.now_ms() >= work.delivery.expires_at:
            return NotStarted(Event.TTL, "ttl_in_queue")
        if self.paused and self.leased:
            return NotStarted(Event.SHUT, LANE_PAUSED)
        return None
