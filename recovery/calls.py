"""The threads of one lane that call the provider once more: few, so that live traffic does not feel them.

Nothing begins that must not: not past its expires_at, not outside the provider's dedup window where it
relies on that, not under a lapsed lease, not while recovery is stopping.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

import msgspec
import structlog

from channels.channel import Call, Channel
from dispatcher.accounts import Accounts
from dispatcher.clock import Clock
from dispatcher.handoff import Handoff
from idempotency.recovering import TTL_IN_DOUBT, Taken
from message.outcomes import AnyOutcome, Unknown
from message.states import Event
from message.vocabulary import Lane
from recovery.routes import Route

log = structlog.get_logger(__name__)
_MS: Final = 1_000
WINDOW_OVER: Final = "dedup_window_over"


class Engine(Protocol):
    """What runs one provider call and never raises (channels/engine.py)."""

    def send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """One outcome per delivery of the call."""
        ...


class Permit(Protocol):
    """Whether a call may begin (dispatcher/lease.py)."""

    def wait_valid(self, term: int, until: Callable[[], bool]) -> bool:
        """See `dispatcher.lanes.Permit`."""
        ...


class Resend(msgspec.Struct, gc=False):
    """One taken delivery on its way; the thread that calls writes, the one that settles reads."""

    taken: Taken
    route: Route
    term: int
    """Of the lease under which it was taken."""
    not_after: int
    """Epoch milliseconds: begun later it would be no repeat to the provider. 0: it relies on none."""
    outcome: AnyOutcome | None = None
    event: Event | None = None
    """Where no call was made."""
    reason: str | None = None
    started_at: int = 0
    answered_at: int = 0

    @property
    def doubted(self) -> bool:
        """Whether an earlier call of it may have sent it."""
        return self.taken.doubted_since is not None


class Callers:
    """One lane's threads. `put` is the taking thread's; `finished` gets back everything put."""

    def __init__(
        self,
        lane: Lane,
        threads: int,
        engine: Engine,
        *,
        timeout_ms: int,
        permit: Permit,
        accounts: Accounts,
        clock: Clock,
        finished: SimpleQueue[Resend | None],
    ) -> None:
        self.lane = lane
        self.threads = threads
        self.timeout_ms = timeout_ms
        self._engine = engine
        self._permit = permit
        self._accounts = accounts
        self._clock = clock
        self._finished = finished
        self._queue: Handoff[Resend | None] = Handoff()
        self._count = threading.Lock()
        self._open = 0  # put and not settled; guarded by _count
        self._stopping = False

    @property
    def room(self) -> int:
        """Deliveries that may be taken now: one in work and one waiting for each thread; none before half
        of those that wait are gone, so that rows are taken together."""
        free = 2 * self.threads - self._open
        return free if free > self.threads // 2 else 0

    @property
    def unsettled(self) -> int:
        """Taken and not settled."""
        return self._open

    def start(self) -> None:
        """Start the threads."""
        for number in range(self.threads):
            self._spawn(f"resend-{self.lane.name}-{number}")

    def take_up(self, count: int) -> None:
        """So many are taken and will be put, or were never put after all (below 0)."""
        with self._count:
            self._open += count

    def put(self, resend: Resend) -> None:
        """Hand one over, for which `take_up` made room."""
        self._queue.put(resend)

    def stop(self) -> None:
        """Begin nothing more: what waits is given back, what has begun ends. Idempotent."""
        self._stopping = True

    def close(self) -> None:
        """End the threads, once nothing is put any more."""
        for _ in range(self.threads):
            self._queue.put(None)

    def _spawn(self, name: str) -> None:
        threading.Thread(target=self._serve, args=(name,), name=name, daemon=True).start()

    def _serve(self, name: str) -> None:
        """Serve until closed; a thread that dies is replaced, and its delivery is in doubt."""
        resend: Resend | None = None
        seat = self._queue.seat()
        try:
            while (resend := self._queue.take(seat)) is not None:
                self._run(resend)
                self._finished.put(resend)
        except BaseException as exc:
            log.exception("resend_thread_died", thread=name, cause=repr(exc))
            if resend is not None:
                resend.outcome = Unknown(code="thread_died", detail=repr(exc))
                self._finished.put(resend)
            self._spawn(name)

    def _run(self, resend: Resend) -> None:
        refusal = self._refusal(resend)
        if refusal is not None:
            resend.event, resend.reason = refusal
            self._accounts.release(resend.route.account)
            return
        resend.started_at, begun_at = self._clock.now_ms(), self._clock.monotonic()
        account, channel = resend.route
        call = Call(account, (resend.taken.delivery,))
        outcomes = self._engine.send(channel, call, self.timeout_ms / _MS)
        self._accounts.record(account, outcomes, begun_at)
        resend.outcome = outcomes[0]
        resend.answered_at = self._clock.now_ms()

    def _refusal(self, resend: Resend) -> tuple[Event, str] | None:
        """Why this call must not begin, or None. The lease is the last question: it is the one that can
        change while a thread sleeps."""
        reason = self._too_late(resend)
        if reason is not None:
            return reason
        if self._permit.wait_valid(resend.term, lambda: self._too_late(resend) is not None):
            # Waiting may have taken its time; nothing waits between this question and the first byte.
            return self._too_late(resend)
        return self._too_late(resend) or (Event.UNKNOWN, "lease_lapsed")

    def _too_late(self, resend: Resend) -> tuple[Event, str] | None:
        taken, now = resend.taken, self._clock.now_ms()
        if self._stopping:
            return Event.GIVEN_BACK, "stopping"
        if now >= taken.delivery.expires_at:
            if resend.doubted:
                return Event.BUDGET_SPENT, TTL_IN_DOUBT
            return Event.TTL, "ttl_in_retry"
        if resend.not_after and now >= resend.not_after:
            return Event.UNKNOWN, WINDOW_OVER
        return None
