"""Handing work from one thread to many, each woken by itself.

`queue.SimpleQueue` has one lock for all who wait: whoever wakes must first get the interpreter before
the next can even be woken, so forty deliveries that arrive together start one after the other, a
dozen milliseconds for the last. Here every waiting thread has a lock of its own and the putting
thread opens as many as there is work (docs/decisions/041-handing-work-to-lanes.md).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Handoff(Generic[T]):
    """Any thread puts, many take; first in, first out. Unbounded: whoever puts keeps the bound.

    `deque`'s own operations are atomic; `_waiting` is a stack, so that the thread that worked last
    (its connection warm) works next.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Queue the item and wake one thread for it."""
        self._items.append(item)
        self._wake_one()

    def seat(self) -> threading.Lock:
        """What a taking thread waits on; each makes one and brings it to every `take`."""
        seat = threading.Lock()
        seat.acquire()
        return seat

    def take(self, seat: threading.Lock) -> T:
        """The next item; waits for one."""
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                self._waiting.append(seat)
            # Between the look and the announcement something may have come, and woken nobody.
            try:
                item = self._items.popleft()
            except IndexError:
                seat.acquire()
                continue
            self._stand_up(seat)
            return item

    def _stand_up(self, seat: threading.Lock) -> None:
        """Got an item without waiting. Was the seat called meanwhile, the call goes to the next."""
        try:
            self._waiting.remove(seat)
        except ValueError:
            seat.acquire()
            if self._items:
                self._wake_one()

    def _wake_one(self) -> None:
        try:
            seat = self._waiting.pop()
        except IndexError:
            return  # all are at work, and look here before they wait
        seat.release()
