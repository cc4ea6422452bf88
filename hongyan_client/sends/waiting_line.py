"""Calls of asyncio that wait for room in the buffer: first come, first served.

No record overtakes an earlier one of its key while both wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict


class WaitingCall:
    """One call in the line. Its own loop alone waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._first = asyncio.Event()

    async def comes(self, timeout_s: float | None) -> bool:
        """Waits until the call is the first. Returns False after `timeout_s` seconds; None: no limit."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._first.wait()
        except TimeoutError:
            return False
        return True

    def give(self) -> bool:
        """Wakes the call, from any thread. Returns False if its loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._first.set)
        except RuntimeError:
            return False
        return True


class WaitingLine:
    """Safe from any loop and thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: OrderedDict[WaitingCall, None] = OrderedDict()  # written under the lock

    def __len__(self) -> int:
        return len(self._turns)

    def join(self) -> WaitingCall:
        """Returns a turn at the end of the line. Call it in the loop that waits."""
        turn = WaitingCall()
        with self._lock:
            self._turns[turn] = None
            if len(self._turns) == 1:
                turn.give()
        return turn

    def leave(self, turn: WaitingCall) -> None:
        """Ends a turn, also one that never came. The call behind the first one is the first."""
        with self._lock:
            was_first = next(iter(self._turns)) is turn
            del self._turns[turn]
            while was_first and self._turns and not next(iter(self._turns)).give():
                self._turns.popitem(last=False)
