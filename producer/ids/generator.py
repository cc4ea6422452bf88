"""Hands out snowflake ids under a leased worker number.

Times come from the database's clock, continued by the monotonic clock. This machine's wall clock has no
part in them. If the database's clock goes back, ids go on from the last one.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from idempotency.ledger import LedgerError
from message.snowflake import EPOCH_MS, LAST_MS
from producer.ids.errors import IdsUnavailable, IdTrouble
from producer.ids.lease_keeper import LeaseKeeper
from producer.ids.sequence import first_place, ids_between, time_of
from producer.ids.worker_numbers import AHEAD_MS, RenewedNumber, TakenNumber, WorkerNumbers
from sending.runtime.clock import Clock

T = TypeVar("T")
LEASE_S: Final = 30.0
MARGIN_S: Final = 5.0
"""Time before the lease's end at which no id is issued any more."""
MAX_BATCH: Final = 1_000_000

_generators: weakref.WeakSet[IdGenerator] = weakref.WeakSet()
"""Generators of this process; a forked child empties each of them."""


class _HeldNumber(NamedTuple):
    """The lease of one worker number, in this process's terms."""

    taken: TakenNumber
    end: int
    """Place of the mark: ids are issued below it."""
    until: float
    """Monotonic time at which the lease counts as over."""


class IdGenerator:
    """Thread-safe. A process takes its worker number at the first id; a forked child takes another one."""

    def __init__(
        self,
        numbers: WorkerNumbers,
        *,
        lease_s: float = LEASE_S,
        margin_s: float = MARGIN_S,
        clock: Clock | None = None,
        keeps: bool = True,
    ) -> None:
        """`keeps` has a thread renew the lease; without it, calls to `renew` do."""
        self._numbers = numbers
        self._lease_s = lease_s
        self._margin_s = margin_s
        self._clock = clock or Clock()
        self._keeps = keeps
        self._begin_anew()
        _generators.add(self)

    def begin_in_child(self) -> None:
        """Forgets lease, lock, thread and connections: a forked child shares none with its parent."""
        self._numbers.forget_connections()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        # Under the lock.
        self._held: _HeldNumber | None = None
        self._next = first_place(EPOCH_MS)
        self._keeper: LeaseKeeper | None = None

    @property
    def worker(self) -> int | None:
        """The worker number that is held; None before the first id and after a lost lease."""
        held = self._held
        return held.taken.number if held else None

    def next_id(self) -> int:
        """Returns one id. Raises IdTrouble."""
        return self.batch(1)[0]

    def batch(self, count: int) -> list[int]:
        """Returns `count` ids in rising order. Raises IdTrouble; ValueError for a count that is not
        from 1 to MAX_BATCH."""
        if not 1 <= count <= MAX_BATCH:
            raise ValueError(f"a batch has 1 to {MAX_BATCH:,} ids, not {count:,}")
        with self._lock:
            while True:
                held = self._usable()
                first = max(self._next, first_place(self._clock.now_ms()))
                if first + count <= held.end:
                    break
                self._raise_mark(held, time_of(first + count))
            self._next = first + count
        return ids_between(first, first + count, held.taken.number)

    def renew(self) -> None:
        """Renews the lease. Does nothing without one. Raises IdTrouble."""
        with self._lock:
            held, used_ms = self._held, time_of(self._next)
        if held is None:
            return
        asked_at = self._clock.monotonic()
        renewed = _asked(lambda: self._numbers.renew(held.taken, used_ms, self._lease_ms))
        with self._lock:
            if self._held is not None and self._held.taken == held.taken:
                self._apply(held.taken, renewed, asked_at)

    def close(self) -> None:
        """Gives the number back. Ids after it take a number anew. Idempotent; raises nothing."""
        with self._lock:
            held, self._held = self._held, None
            keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        if held is not None:
            try:
                self._numbers.give_back(held.taken)
            except LedgerError:
                pass  # it lapses by itself

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_s * 1_000)

    def _usable(self) -> _HeldNumber:
        """Returns a lease that is not over. Takes a number if there is none. Needs the lock."""
        if self._held is not None and self._clock.monotonic() < self._held.until:
            return self._held
        self._held = None
        asked_at = self._clock.monotonic()
        taken = _asked(lambda: self._numbers.take(_holder(), self._lease_ms))
        # Above all ids of an earlier lease, whose worker number may be a higher one.
        self._next = max(first_place(taken.begin_ms), first_place(time_of(self._next) + 1))
        self._clock.calibrate(taken.now_ms, asked_at)
        self._held = self._held_from(taken, taken.mark_ms, asked_at)
        if self._keeps and self._keeper is None:
            self._keeper = LeaseKeeper(weakref.ref(self), self._lease_s / 3)
        return self._held

    def _raise_mark(self, held: _HeldNumber, wanted_ms: int) -> None:
        """Has the mark written ahead of `wanted_ms`. Forgets a lost lease. Needs the lock."""
        if wanted_ms + AHEAD_MS > LAST_MS:
            raise IdTrouble("the time of snowflake ids ends here: set the database's clock right")
        asked_at = self._clock.monotonic()
        renewed = _asked(lambda: self._numbers.renew(held.taken, wanted_ms, self._lease_ms))
        self._apply(held.taken, renewed, asked_at)

    def _apply(self, taken: TakenNumber, renewed: RenewedNumber | None, asked_at: float) -> None:
        """Takes the database's answer to a renewal; None is a lost lease. Needs the lock."""
        if renewed is None:
            self._held = None
            return
        self._clock.calibrate(renewed.now_ms, asked_at)
        self._held = self._held_from(taken, renewed.mark_ms, asked_at)

    def _held_from(self, taken: TakenNumber, mark_ms: int, asked_at: float) -> _HeldNumber:
        until = asked_at + self._lease_s - self._margin_s
        return _HeldNumber(taken, first_place(mark_ms), until)


def _asked(question: Callable[[], T]) -> T:
    """Returns the database's answer. Raises IdsUnavailable if there is none."""
    try:
        return question()
    except LedgerError as exc:
        raise IdsUnavailable(f"no ids: {exc}") from exc


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _forget_in_child() -> None:
    for one in list(_generators):
        one.begin_in_child()


os.register_at_fork(after_in_child=_forget_in_child)
