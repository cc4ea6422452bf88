"""A circuit breaker for one account in one lane.

    CLOSED ──enough calls, too many failed──▶ OPEN      CLOSED ──an outcome about the account──▶ OPEN
    OPEN ──its time is over──▶ HALF_OPEN                a bounded number of deliveries may try
    HALF_OPEN ──so many went well──▶ CLOSED             HALF_OPEN ──a call failed──▶ OPEN, twice as long

`now` is monotonic seconds everywhere. A call counts only in the state in which it began: late timeouts of
an outage neither fail the probes after it nor open the breaker again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final

from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown, is_paced
from policy.schema import BreakerPolicy

_MS: Final = 1_000
_PARTS: Final = 10
"""Parts of the sliding window: old calls leave it a tenth at a time."""
_OVERLOADED: Final = "http_503"


class BreakerState(IntEnum):
    """As the gauge `hongyan_breaker_state` shows it."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class CallVerdict(Enum):
    """The verdict of one call on its account."""

    WELL = "well"
    """The provider answered, if only to refuse this message."""
    FAILED = "failed"
    HALTED = "halted"
    """The account itself is refused: every call through it would end so."""


def judgement_of(outcomes: Sequence[AnyOutcome]) -> CallVerdict:
    """Returns one call's verdict: HALTED if any outcome halts the account, else WELL if any went well."""
    if any(_halts(outcome) for outcome in outcomes):
        return CallVerdict.HALTED
    return CallVerdict.FAILED if all(_failed(o) for o in outcomes) else CallVerdict.WELL


def _halts(outcome: AnyOutcome) -> bool:
    """Whether the outcome is about the account. Of the refusals for pace, only a refused login is."""
    if isinstance(outcome, NotSent) and outcome.limit is not None:
        return outcome.limit is Limit.LOGIN
    return isinstance(outcome, Rejected | NotSent) and outcome.account


def _failed(outcome: AnyOutcome) -> bool:
    """Whether it is Unknown, or NotSent without a time: no connection, a busy mail server. A refusal
    for pace is no failure, since the rate slows the account. Only a 503 is both."""
    if isinstance(outcome, NotSent):
        if outcome.code == _OVERLOADED:
            return True
        return not is_paced(outcome) and outcome.retry_after_ms is None
    return isinstance(outcome, Unknown)


class CircuitBreaker:
    """Thread-safe; does no I/O and reads no clock."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self.opened = 0
        """Times it opened."""
        self.policy = policy
        self._lock = threading.Lock()  # guards everything below
        self._state = BreakerState.CLOSED
        self._since = float("-inf")
        """Start of the present state."""
        self._pause_s = 0.0
        """Length of its last open time."""
        self._window = _Window(policy.window_ms / _MS)
        self._probes: deque[float] = deque()
        """Time at which each probe counts as lost, oldest first."""
        self._well = 0
        """Deliveries that went well since it became half open."""

    @property
    def closed(self) -> bool:
        """Whether everything may pass. Read without the lock, since only a failure ends this state."""
        return self._state is BreakerState.CLOSED

    def well(self, now: float) -> bool:
        """Counts a call that went well, if it is closed. Returns False if `record` must judge. Takes no
        lock: a lost count hardly shifts the share."""
        if self._state is not BreakerState.CLOSED:
            return False
        self._window.add(now, failed=False)
        return True

    def state(self, now: float) -> BreakerState:
        """Returns the state at `now`."""
        with self._lock:
            return self._turned(now)

    def room(self, now: float) -> int | None:
        """Returns the deliveries that may go now; None: no limit."""
        with self._lock:
            state = self._turned(now)
            if state is BreakerState.CLOSED:
                return None
            return self._probes_left(now) if state is BreakerState.HALF_OPEN else 0

    def wait_s(self, now: float) -> float:
        """Returns seconds until `room` may be above 0 by time alone; 0 if it is."""
        with self._lock:
            state = self._turned(now)
            if state is BreakerState.OPEN:
                return self._since + self._pause_s - now
            if state is BreakerState.HALF_OPEN and self._probes_left(now) == 0:
                return self._probes[0] - now
            return 0.0

    def take(self, now: float) -> bool:
        """Lets one delivery go, if it may. At a half-open breaker it becomes one of the probes."""
        with self._lock:
            state = self._turned(now)
            if state is not BreakerState.HALF_OPEN:
                return state is BreakerState.CLOSED
            if self._probes_left(now) == 0:
                return False
            self._probes.append(now + self._pause_s)
            return True

    def give_back(self) -> None:
        """Gives back the place of a delivery that is not sent after all."""
        if not self._probes:
            return
        with self._lock:
            self._forget_probes(1)

    def record(
        self,
        now: float,
        judgement: CallVerdict,
        *,
        deliveries: int = 1,
        begun_at: float | None = None,
    ) -> BreakerState | None:
        """Records the end of one call. Returns the state that it led to; None if that stays."""
        with self._lock:
            state = self._turned(now)
            if state is BreakerState.OPEN or (begun_at is not None and begun_at < self._since):
                return None
            if state is BreakerState.HALF_OPEN:
                return self._judge_probes(now, judgement, deliveries)
            self._window.add(now, failed=judgement is not CallVerdict.WELL)
            if judgement is CallVerdict.HALTED or self._too_many_failed(now):
                return self._open(now)
            return None

    def _turned(self, now: float) -> BreakerState:
        """Returns the state. An open one whose time is over becomes half open first."""
        if self._state is BreakerState.OPEN and now >= self._since + self._pause_s:
            self._enter(BreakerState.HALF_OPEN, self._since + self._pause_s)
            self._probes.clear()
            self._well = 0
        return self._state

    def _judge_probes(
        self, now: float, judgement: CallVerdict, deliveries: int
    ) -> BreakerState | None:
        self._forget_probes(deliveries)
        if judgement is not CallVerdict.WELL:
            return self._open(now)
        self._well += deliveries
        if self._well < self.policy.probes:
            return None
        self._window.clear()
        return self._enter(BreakerState.CLOSED, now)

    def _too_many_failed(self, now: float) -> bool:
        calls, failed = self._window.counts(now)
        return calls >= self.policy.min_calls and failed >= self.policy.share * calls

    def _open(self, now: float) -> BreakerState:
        """Opens for longer than last time, unless it was closed for at least its last open time."""
        shortest, longest = self.policy.open_ms / _MS, self.policy.max_open_ms / _MS
        recovered = self._state is BreakerState.CLOSED and now - self._since >= self._pause_s
        self._pause_s = shortest if recovered else min(max(self._pause_s * 2, shortest), longest)
        self.opened += 1
        return self._enter(BreakerState.OPEN, now)

    def _enter(self, state: BreakerState, since: float) -> BreakerState:
        self._state, self._since = state, since
        return state

    def _probes_left(self, now: float) -> int:
        while self._probes and self._probes[0] <= now:
            self._probes.popleft()  # its delivery was a duplicate, expired, or hangs
        return self.policy.probes - len(self._probes)

    def _forget_probes(self, count: int) -> None:
        for _ in range(min(count, len(self._probes))):
            self._probes.popleft()


class _Window:
    """Calls and failures of the last `span_s` seconds, in parts."""

    def __init__(self, span_s: float) -> None:
        self._part_s = span_s / _PARTS
        self._parts: deque[list[int]] = deque()
        """[number of the part since the clock's zero, calls, failed], oldest first."""

    def add(self, now: float, *, failed: bool) -> None:
        number = int(now // self._part_s)
        if not self._parts or self._parts[-1][0] != number:
            self._parts.append([number, 0, 0])
        self._parts[-1][1] += 1
        self._parts[-1][2] += failed

    def counts(self, now: float) -> tuple[int, int]:
        """(calls, failed)."""
        oldest = int(now // self._part_s) - _PARTS + 1
        while self._parts and self._parts[0][0] < oldest:
            self._parts.popleft()
        parts = list(self._parts)  # at once: `well` adds to it without a lock
        return sum(p[1] for p in parts), sum(p[2] for p in parts)

    def clear(self) -> None:
        self._parts.clear()
