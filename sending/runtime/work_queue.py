"""Hands work from one thread to many, and wakes few of them at a time.

`queue.SimpleQueue` has one lock for all waiting threads. Here every waiting thread has a lock of its own.
The locks form a stack: the thread that worked last, with a warm connection, works next. At most one waiting
thread is woken at a time. It wakes the next one after it took an item, if more are queued. A woken thread
must first get the interpreter; until then the working threads take the items
(docs/decisions/041-handing-work-to-lanes.md).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_CALLED: Final = 1
"""Most threads that are woken and do not run yet."""


class WorkQueue(Generic[T]):
    """Any thread puts, many take; first in, first out. Unbounded: the callers of `put` keep a bound.

    `deque`'s own operations are atomic. To wake a thread takes a token from `_calls`; the woken thread
    returns it before it looks for work.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[threading.Lock] = deque()
        self._calls: deque[None] = deque([None] * _CALLED)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Queues the item; wakes a waiting thread unless one is on its way."""
        self._items.append(item)
        self._call()

    def waiter(self) -> threading.Lock:
        """Returns the lock on which a taking thread waits; it passes the same one to every `take`."""
        waiter = threading.Lock()
        waiter.acquire()
        return waiter

    def take(self, waiter: threading.Lock) -> T:
        """Returns the next item; waits for one."""
        while True:
            try:
                item = self._next()
            except IndexError:
                self._waiting.append(waiter)
            else:
                self._call()
                return item
            # Between the look and the append an item may have come, and have woken no thread.
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
        """Returns the next item. Raises IndexError if there is none."""
        return self._items.popleft()

    def _ready(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._items)

    def _stand_up(self, waiter: threading.Lock) -> None:
        """Takes the lock off the stack. If its thread was woken meanwhile, returns the token."""
        try:
            self._waiting.remove(waiter)
        except ValueError:
            waiter.acquire()
            self._calls.append(None)

    def _call(self) -> None:
        """Wakes a waiting thread, if there is an item and no thread is on its way. All others are at work,
        and look here before they wait."""
        while self._calls and self._waiting and self._ready():
            try:
                self._calls.pop()
            except IndexError:
                return
            try:
                waiter = self._waiting.pop()
            except IndexError:
                # A thread may have begun to wait while we had the token, and its waker found none.
                self._calls.append(None)
                continue
            waiter.release()
            return


class SlottedQueue(WorkQueue[T]):
    """Bounds the pieces of work under way, each from `take` to `free`. `put_first` adds to a
    piece that is under way: it goes first, and needs no slot."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self._urgent: deque[T] = deque()
        self._slots: deque[None] = deque([None] * slots)
        self._owed: deque[None] = deque()
        """Slots to remove when they come free."""
        self._all = slots

    @property
    def busy(self) -> int:
        """Pieces under way."""
        return max(self._all + len(self._owed) - len(self._slots), 0)

    def put_first(self, item: T) -> None:
        """Queues an item of a piece under way, before all others."""
        self._urgent.append(item)
        self._call()

    def free(self) -> None:
        """Frees the slot of a piece that has ended."""
        try:
            self._owed.pop()
        except IndexError:
            self._slots.append(None)
            self._call()

    def resize(self, slots: int) -> None:
        """Sets the number of slots; for one thread at a time. Surplus slots go as they come free."""
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
