"""Base of the pools that call providers: a live lane's (dispatcher/pipeline/lanes.py) and recovery's
(recovery/retry/pool.py).

A call under way ends early if one of its deliveries is too late, or if its lease is over: the transport
asks before the step that cannot be taken back, the engine after a wait for a token
(`channels.channel.Call.withdrawn`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from structlog.contextvars import bound_contextvars

from channels.accounts.time_limits import Limits
from channels.channel import Call
from channels.http_client.failures import LEASE_LAPSED, WITHDRAWN
from message.delivery import Delivery
from message.outcomes import NotSent
from sending.endings import NotStarted
from sending.runtime.clock import Clock


class SendPermit(Protocol):
    """Whether a send may begin now (sending/runtime/lease.py)."""

    def wait_valid(self, term: int, until: Callable[[], bool]) -> bool:
        """Returns True while the lease of that term holds; waits through an outage of the database until it
        holds again. Returns False once a new term began, since the old term's claims are in doubt by then,
        or when `until` returns True."""
        ...

    def ends_at(self, term: int) -> float:
        """Returns the monotonic time after which no first byte of that term's calls may leave. It is past
        once a new term began."""
        ...


class PooledWork(Protocol):
    """Carries one delivery: a lane's Work, recovery's RetryWork."""

    end: Any
    route: Any
    term: int
    """Term of the lease under which it was claimed."""
    started_at: int

    @property
    def delivery(self) -> Delivery:
        """The delivery."""
        ...


W = TypeVar("W", bound=PooledWork)


class CallPool(Generic[W]):
    """Threads that take calls from a queue. A subclass gives `_serve`, `_end_thread` and `_too_late`."""

    def __init__(
        self,
        lane: str,
        *,
        permit: SendPermit,
        clock: Clock,
        leased: bool = True,
        prefix: str = "",
    ) -> None:
        """`prefix` comes before the lane's name in those of threads. `leased`: deliveries are claimed under
        a lease, on record in the ledger."""
        self.replaced = 0
        """Number of threads that died and were replaced."""
        self._lane_name = lane
        self._prefix = f"{prefix}{lane}"
        self._permit = permit
        self._clock = clock
        self.leased = leased
        """Whether deliveries are claimed under a lease; recovery then sends those given back."""
        self.paused = False
        """Whether a person paused the lane; `pause` writes it, in the thread of `ControlWatcher`."""
        self._stopping = False
        self._sizing = threading.Lock()  # guards the two below
        self._threads = 0  # without those that were asked to end
        self._spawned = 0

    def pause(self, paused: bool) -> None:
        """Begins nothing more, or goes on; calls under way end."""
        self.paused = paused

    @property
    def stopping(self) -> bool:
        """Whether nothing more begins; a subclass's `stop` sets it."""
        return self._stopping

    @property
    def threads(self) -> int:
        """Number of threads, without those that were asked to end."""
        return self._threads

    def _serve(self, name: str) -> None:
        """Serves until it takes the item that `_end_thread` put. Calls `_replace` if it dies."""
        raise NotImplementedError

    def _end_thread(self) -> None:
        """Lets one thread end after the calls that were queued before."""
        raise NotImplementedError

    def _too_late(self, work: W) -> NotStarted | None:
        """Returns why the delivery must not be sent any more; None if it may."""
        raise NotImplementedError

    def _resize(self, threads: int) -> None:
        """Starts or ends threads; called under `_sizing`."""
        for _ in range(self._threads, threads):
            self._spawned += 1
            self._replace(f"{self._prefix}-{self._spawned - 1}")
        for _ in range(threads, self._threads):
            self._end_thread()
        self._threads = threads

    def _replace(self, name: str) -> None:
        """Starts a thread of that name."""
        threading.Thread(target=self._serve_logged, args=(name,), name=name, daemon=True).start()

    def _serve_logged(self, name: str) -> None:
        """Serves; the thread's events, also those of libraries, have the lane."""
        with bound_contextvars(lane=self._lane_name):
            self._serve(name)

    def _call_for(self, works: Sequence[W], limits: Limits, *, waits: bool = False) -> Call:
        """Returns the call, which begins now. `waits`: the engine may wait for a token before it."""
        now = self._clock.now_ms()
        for work in works:
            work.started_at = now
        deliveries, account = [work.delivery for work in works], works[0].route[0]
        steps, not_after = limits.steps, self._not_after(works)
        ask = None if steps is None and not waits else partial(self._withdrawn, works)
        return Call(account, deliveries, not_after=not_after, steps=steps, withdrawn=ask)

    def _not_after(self, works: Sequence[W]) -> float:
        """Returns the monotonic end of their leases: a thread may sleep between the check of the lease and
        the first byte."""
        if not self.leased:
            return inf
        return min([self._permit.ends_at(work.term) for work in works])

    def _withdrawn(self, works: Sequence[W]) -> str:
        """Returns why the call must not be finished any more; empty if it may. Asks the lease last, since a
        thread may sleep in between."""
        late = next((late for late in map(self._too_late, works) if late is not None), None)
        if late is not None:
            return late.reason
        return LEASE_LAPSED if self._clock.monotonic() >= self._not_after(works) else ""

    def _take_back(self, work: W) -> None:
        """Ends a delivery whose call was withdrawn as not started. Keeps the outcome if the lease was the
        cause."""
        end = work.end
        if type(end) is NotSent and end.code == WITHDRAWN:
            work.end = self._too_late(work) or end
