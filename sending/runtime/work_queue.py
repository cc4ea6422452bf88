"""Handing work from one thread to many, few of them woken at a time.

`queue.SimpleQueue` has one lock for all who wait. Here every waiting thread has a lock of its own, and
they form a stack, so that the thread that worked last (its connection warm) works next. Of all who wait
one is called at a time, and calls the next when it has taken something and there is more: a thread that is
called must first get the interpreter, and until it has it, those at work take what there is
(docs/decisions/041-handing-work-to-lanes.md).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_CALLED: Final = 1
"""Threads that are called and have not yet come, at most."""


class WorkQueue(Generic[T]):
    """Any thread puts, many take; first in, first out. Unbounded: whoever puts keeps the bound.

    `deque`'s own operations are atomic; a call is a token taken from `_calls`, and brought back by whom it
    woke before that one looks for work.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[threading.Lock] = deque()
        self._calls: deque[None] = deque([None] * _CALLED)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Queue the item and see that a thread comes for it."""
        self._items.append(item)
        self._call()

    def waiter(self) -> threading.Lock:
        """What a taking thread waits on; each makes one and brings it to every `take`."""
        waiter = threading.Lock()
        waiter.acquire()
        return waiter

    def take(self, waiter: threading.Lock) -> T:
        """The next item; waits for one."""
        while True:
            try:
                item = self._next()
            except IndexError:
                self._waiting.append(waiter)
            else:
                self._call()
                return item
            # Between the look and the announcement something may have come, and called nobody.
            try:
                item = self._next()
            except IndexError:
                waiter.acquire()
                self._calls.append(None)
                continue
            self._stand_up(waiter)
            self._call()
            return item

    def _next(self) -> T:
        """Raises IndexError where there is none."""
        return self._items.popleft()

    def _ready(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._items)

    def _stand_up(self, waiter: threading.Lock) -> None:
        """Got an item without waiting. Gives the call back if the waiter was called meanwhile."""
        try:
            self._waiting.remove(waiter)
        except ValueError:
            waiter.acquire()
            self._calls.append(None)

    def _call(self) -> None:
        """Wake one who waits, if there is something to take and nobody is on the way. All others are at
        work, and look here before they wait."""
        while self._calls and self._waiting and self._ready():
            try:
                self._calls.pop()
            except IndexError:
                return
            try:
                waiter = self._waiting.pop()
            except IndexError:
                # Who came to wait just now may have been left to us by whoever found no call to make.
                self._calls.append(None)
                continue
            waiter.release()
            return


class SlottedQueue(WorkQueue[T]):
    """Work of which only so many pieces are under way at once, each from `take` to `free`, whichever
    threads they are with. `urge` adds to a piece that is under way: it goes first, and needs no slot."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self._urgent: deque[T] = deque()
        self._slots: deque[None] = deque([None] * slots)
        self._owed: deque[None] = deque()
        """Slots that are to go when they come free."""
        self._all = slots

    @property
    def busy(self) -> int:
        """Pieces under way."""
        return max(self._all + len(self._owed) - len(self._slots), 0)

    def put_first(self, item: T) -> None:
        """Something that belongs to a piece under way, before all others."""
        self._urgent.append(item)
        self._call()

    def free(self) -> None:
        """A piece is no more under way."""
        try:
            self._owed.pop()
        except IndexError:
            self._slots.append(None)
            self._call()

    def resize(self, slots: int) -> None:
        """From now on so many; one thread's at a time. Those too many go as they come free."""
        for _ in range(self._all, slots):
            self.free()
        for _ in range(slots, self._all):
            try:
                self._slots.pop()
            except IndexError:
                self._owed.append(None)
        self._all = slots

    def _next(self) -> T:
        if self._urgent:
            return self._urgent.popleft()
        self._slots.pop()
        try:
            return super()._next()
        except IndexError:
            self.free()
            raise

    def _ready(self) -> bool:
        return bool(self._urgent or (self._items and self._slots))
