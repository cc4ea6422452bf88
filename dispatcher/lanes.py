"""A lane's bounded pool: threads that take one claimed delivery each and call the channel.

Nothing starts here that must not: not past its expires_at, not under a lapsed lease, not while the
worker is stopping. What does not start goes to settle with the reason.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Protocol

import structlog

from channels.channel import Account, Call, Channel
from dispatcher.clock import Clock
from dispatcher.handoff import Handoff
from dispatcher.work import Finished, Work
from message.outcomes import AnyOutcome, Unknown
from message.states import Event
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy

log = structlog.get_logger(__name__)

_MS = 1_000


class Engine(Protocol):
    """What runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> Sequence[AnyOutcome]:
        """One outcome per delivery of the call."""
        ...


class Permit(Protocol):
    """Whether a send may begin now (dispatcher/lease.py)."""

    def wait_valid(self, term: int, until: Callable[[], bool]) -> bool:
        """True while the lease of that term holds; waits through an outage of the database until it
        holds again. False once a new term began, since what was claimed in the old one is in doubt
        and no longer ours, or when `until` says that waiting is over."""
        ...


class Pool:
    """One lane's threads and queue. `taken` is written by intake, `returned` by settle."""

    def __init__(
        self,
        lane: Lane,
        policy: LanePolicy,
        routes: Mapping[str, tuple[Account, Channel]],
        engine: Engine,
        *,
        permit: Permit,
        clock: Clock,
        finished: SimpleQueue[Finished],
    ) -> None:
        self.lane = lane
        self.policy = policy
        self.routes = routes
        self.taken = 0
        self.returned = 0
        self.busy = 0
        """Calls at the provider, roughly; for metrics."""
        self.replaced = 0
        """Threads that died and were replaced."""
        self._names = list(routes)
        self._engine = engine
        self._permit = permit
        self._clock = clock
        self._finished = finished
        self._queue: Handoff[Work | None] = Handoff()
        self._stopping = False
        self._durable = policy.guarantee is not Guarantee.BEST_EFFORT
        """Whether someone else would take up what is given back."""
        self._timeout_s = policy.timeout_ms / _MS
        self._capacity = policy.threads + policy.queue_size

    @property
    def room(self) -> int:
        """Deliveries that may still be claimed: what is claimed and not settled is bounded."""
        return self._capacity - (self.taken - self.returned)

    @property
    def unsettled(self) -> int:
        """Claimed and not yet settled."""
        return self.taken - self.returned

    def start(self) -> None:
        """Start the threads."""
        for number in range(self.policy.threads):
            self._spawn(f"{self.lane.name}-{number}")

    def put(self, work: Work) -> None:
        """Hand a claimed delivery over; intake keeps to `room`."""
        self._queue.put(work)

    def stop(self) -> None:
        """Begin nothing more: what waits is given back, what has begun ends. Idempotent."""
        self._stopping = True

    def close(self) -> None:
        """End the threads, once nobody puts anything in any more."""
        for _ in range(self.policy.threads):
            self._queue.put(None)

    def _spawn(self, name: str) -> None:
        threading.Thread(target=self._serve, args=(name,), name=name, daemon=True).start()

    def _serve(self, name: str) -> None:
        """Serve until told to stop; a thread that dies is replaced and its delivery is in doubt."""
        work: Work | None = None
        seat = self._queue.seat()
        try:
            while (work := self._queue.take(seat)) is not None:
                self._run(work)
                self._finished.put(work)
        except BaseException as exc:  # a dead thread must neither shrink the pool nor keep its work
            log.exception("lane_thread_died", thread=name, cause=repr(exc))
            self.replaced += 1
            if work is not None:
                work.outcome = Unknown(code="thread_died", detail=repr(exc))
                self._finished.put(work)
            self._spawn(name)

    def _run(self, work: Work) -> None:
        refusal = self._refusal(work)
        if refusal is not None:
            work.event, work.reason = refusal
            return
        account, channel = self._route(work)
        work.delivery.account = account.name
        work.started_at = self._clock.now_ms()
        self.busy += 1
        try:
            call = Call(account, (work.delivery,))
            work.outcome = self._engine.send(channel, call, self._timeout_s)[0]
        finally:
            self.busy -= 1
        work.answered_at = self._clock.now_ms()

    def _refusal(self, work: Work) -> tuple[Event, str] | None:
        """Why this delivery must not start, or None. The lease is the last question: it is the one
        that can change while a thread sleeps."""
        reason = self._too_late(work)
        if reason is not None or not self._durable:
            return reason
        if self._permit.wait_valid(work.term, lambda: self._too_late(work) is not None):
            return None
        return self._too_late(work) or (Event.NOT_SENT, "lease_lapsed")

    def _too_late(self, work: Work) -> tuple[Event, str] | None:
        if self._stopping and self._durable:
            return Event.GIVEN_BACK, "given_back"
        if self._clock.now_ms() >= work.delivery.expires_at:
            return Event.TTL, "ttl_in_queue"
        return None

    def _route(self, work: Work) -> tuple[Account, Channel]:
        """The account a notification names, else one of the lane's, each as likely as the next."""
        named = work.delivery.notification.account
        if named is not None:
            return self.routes[named]
        if len(self._names) == 1:
            return self.routes[self._names[0]]
        return self.routes[random.choice(self._names)]  # noqa: S311 (load spreading, no secret)
