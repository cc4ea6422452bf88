"""Sliding windows of the messages to one receiver, over the whole fleet: exact, one script call a batch.

For providers that drop silently what exceeds a limit. A key holds the times of messages, newest first: the
one at place `count` shows whether a window of `count` is full, and when it has room.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from backends.redis.client import RedisBacked, guarded
from backends.settings import RedisSettings

RECEIVERS_AT_MOST: Final = 50_000
"""Receivers in one process's memory; the one without a message for longest is forgotten first."""
_SCRIPT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local refused, answer, place = {}, {}, 1
for i, key in ipairs(KEYS) do
    local turn = refused[key] or 0
    local delay, most, longest = 0, 0, 0
    for _ = 1, tonumber(ARGV[place]) do
        local count, span = tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2])
        local left = math.floor(turn / count) * span
        local nth = redis.call('LINDEX', key, count - 1 - turn % count)
        if nth then
            left = left + math.max(0, math.min(nth + span - now, span))
        end
        delay, most, longest = math.max(delay, left), math.max(most, count), math.max(longest, span)
        place = place + 2
    end
    place = place + 1
    if delay > 0 then
        refused[key] = turn + 1
    elseif most > 0 then
        redis.call('LPUSH', key, string.format('%.0f', now))
        redis.call('LTRIM', key, 0, most - 1)
        redis.call('PEXPIRE', key, longest)
    end
    answer[i] = delay
end
return answer"""
"""Refused messages of one batch get the times of free places in turn: the first, the second."""


class Window(NamedTuple):
    """Limit of messages in any stretch of `span_ms`."""

    most: int
    span_ms: int


class Passage(NamedTuple):
    """One message to one receiver, before its send."""

    name: str
    """Name of account and receiver together; no receiver in plain text."""
    windows: Sequence[Window]


class Windows(Protocol):
    """The fleet's windows or one process's. Answers come in the order asked; a name may recur."""

    def enter(self, batch: Sequence[Passage]) -> list[int]:
        """Returns per message 0, and counts it, or the milliseconds until there is room for it. Raises
        RedisAway; then it is unknown which are counted."""


class RedisWindows(RedisBacked):
    """The fleet's windows. Thread-safe."""

    def __init__(self, settings: RedisSettings, identity: str) -> None:
        """`identity` is the ledger's. Does not connect yet. Raises ValueError for an invalid URL."""
        self._prefix = f"{settings.prefix}:{identity}:receiver:"
        super().__init__(settings)
        self._script = self._client.register_script(_SCRIPT)

    def enter(self, batch: Sequence[Passage]) -> list[int]:
        """See `Windows.enter`; one round trip."""
        if not batch:
            return []
        arguments: list[int] = []
        for passage in batch:
            arguments.append(len(passage.windows))
            arguments.extend(number for window in passage.windows for number in window)
        keys = [self._prefix + passage.name for passage in batch]
        return list(guarded(self._script, keys, arguments))


class LocalWindows:
    """The twin in one process's memory. Thread-safe; never raises."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        receivers_at_most: int = RECEIVERS_AT_MOST,
    ) -> None:
        self._monotonic = monotonic
        self._at_most = receivers_at_most
        self._lock = threading.Lock()  # guards the one below
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        """Times in milliseconds, newest first; the receiver of the latest message is last."""

    def __len__(self) -> int:
        return len(self._times)

    def enter(self, batch: Sequence[Passage]) -> list[int]:
        with self._lock:
            now = self._monotonic() * 1_000
            refused: dict[str, int] = {}
            return [self._enter(passage, now, refused) for passage in batch]

    def count(self, batch: Sequence[Passage]) -> None:
        """Counts messages that the fleet's windows let go."""
        with self._lock:
            now = self._monotonic() * 1_000
            for passage in batch:
                self._note(passage, now)

    def _enter(self, passage: Passage, now: float, refused: dict[str, int]) -> int:
        turn = refused.get(passage.name, 0)
        times = self._times.get(passage.name, ())
        delay = max((_delay(times, window, now, turn) for window in passage.windows), default=0)
        if delay > 0:
            refused[passage.name] = turn + 1
        else:
            self._note(passage, now)
        return delay

    def _note(self, passage: Passage, now: float) -> None:
        most = max((window.most for window in passage.windows), default=0)
        if not most:
            return
        times = self._times.setdefault(passage.name, deque())
        times.appendleft(now)
        while len(times) > most:
            times.pop()
        self._times.move_to_end(passage.name)
        while len(self._times) > self._at_most:
            self._times.popitem(last=False)


def _delay(times: Sequence[float], window: Window, now: float, turn: int) -> int:
    whole, place = divmod(turn, window.most)
    left = float(whole * window.span_ms)
    nth = next(islice(times, window.most - 1 - place, None), None)
    if nth is not None:
        left += min(max(nth + window.span_ms - now, 0.0), window.span_ms)
    return -int(-left // 1)
