"""Marks of the contents and the number of deliveries that a receiver got lately, over the whole fleet.

Each mark names the delivery that made it: a delivery that is read again finds its own mark and passes, and
none gives back another's mark. A content is a key that expires. The deliveries to a receiver are a sorted
set by the time at which each may go. One script serves a batch.

A third key per delivery holds the names of its marks, so that a process can give them back by the
delivery's key alone. The emptied key stays for as long as a mark could: another process, with the mark in
its own memory, can then distinguish "given back" from "Redis forgot" (decision 074).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from backends.redis.client import RedisBacked, guarded
from backends.redis.receiver_windows import RECEIVERS_AT_MOST, Window
from backends.settings import RedisSettings

_ENTER: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer, place = {}, 1
for i = 1, #KEYS, 3 do
    local member, ttl, delay = ARGV[place], tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2])
    local keep, windows = tonumber(ARGV[place + 3]), tonumber(ARGV[place + 4])
    local at, verdict, made = now + delay, 1, false
    place = place + 5
    if ttl > 0 then
        if redis.call('SET', KEYS[i], member, 'NX', 'PX', ttl + delay) then
            made = true
        elseif redis.call('GET', KEYS[i]) ~= member then
            verdict = 2
        end
    end
    if verdict == 1 and windows > 0 and not redis.call('ZSCORE', KEYS[i + 1], member) then
        redis.call('ZREMRANGEBYSCORE', KEYS[i + 1], '-inf', string.format('%.0f', now - keep))
        for n = 0, windows - 1 do
            local most, span = tonumber(ARGV[place + 2 * n]), tonumber(ARGV[place + 2 * n + 1])
            local from = string.format('(%.0f', at - span)
            local to = string.format('(%.0f', at + span)
            if redis.call('ZCOUNT', KEYS[i + 1], from, to) >= most then
                verdict = 3
            end
        end
        if verdict == 1 then
            redis.call('ZADD', KEYS[i + 1], string.format('%.0f', at), member)
            local left = math.max(keep + delay, redis.call('PTTL', KEYS[i + 1]))
            redis.call('PEXPIRE', KEYS[i + 1], string.format('%.0f', left))
            made = true
        elseif made then
            redis.call('DEL', KEYS[i])
        end
    end
    if verdict == 1 and made then
        redis.call('SET', KEYS[i + 2], KEYS[i] .. '\\n' .. KEYS[i + 1], 'PX',
                   string.format('%.0f', math.max(ttl, keep) + delay))
    end
    place = place + 2 * windows
    answer[#answer + 1] = (verdict == 1 and made) and 0 or verdict
end
return answer"""
# The names of a delivery's marks are in its own key, not in KEYS: the script needs one server (014).
_GIVE_BACK: Final = """
for i, key in ipairs(KEYS) do
    local places, left = redis.call('GET', key), redis.call('PTTL', key)
    local content, receiver = string.match(places or '', '^(.-)\\n(.*)$')
    if content then
        if redis.call('GET', content) == ARGV[2 * i - 1] then
            redis.call('DEL', content)
        end
        redis.call('ZREM', receiver, ARGV[2 * i - 1])
    end
    redis.call('SET', key, '', 'PX', string.format('%.0f', math.max(left, tonumber(ARGV[2 * i]))))
end
return #KEYS"""


class MarkResult(IntEnum):
    """Result for one delivery."""

    MARKED = 0
    """It passes, and is marked now."""
    KNOWN = 1
    """It passes; it was marked before."""
    REPEAT = 2
    """Another delivery has marked its content; nothing was marked."""
    ABOVE = 3
    """Its receiver has reached a cap; nothing was marked."""


class ReceiverMark(NamedTuple):
    """The names of one delivery's marks, without a receiver or a content in plain text."""

    member: str
    """The delivery's key."""
    content: str
    """Name of receiver and content together; empty: no dedup."""
    receiver: str
    """Name of the receiver whose deliveries count; empty: no cap."""


class SendRequest(NamedTuple):
    """One delivery before its gates."""

    mark: ReceiverMark
    content_ms: int
    """Time in which its content must not come again."""
    windows: Sequence[Window]
    keep_ms: int
    """The longest window of all lanes that count the same receiver."""
    delay_ms: int = 0
    """Time until it may go."""


class Returned(NamedTuple):
    """One delivery that surely was not sent: its marks go."""

    member: str
    """The delivery's key."""
    keep_ms: int
    """The longest time for which its lane's marks hold; more than 0."""


class Marks(Protocol):
    """The fleet's marks or one process's. Answers come in the order asked; a name may recur."""

    def enter(self, batch: Sequence[SendRequest]) -> list[MarkResult]:
        """Marks those that pass, each whole or not at all. Raises RedisAway; then it is unknown which are
        marked."""

    def give_back(self, batch: Sequence[Returned]) -> None:
        """Removes the marks of deliveries that were not sent. Raises RedisAway."""

    def returned(self, members: Sequence[str]) -> list[bool]:
        """Returns whether each of these deliveries gave its marks back. Raises RedisAway."""


class RedisMarks(RedisBacked):
    """The fleet's marks. Thread-safe."""

    def __init__(self, settings: RedisSettings, identity: str) -> None:
        """`identity` is the ledger's. Does not connect yet. Raises ValueError for an invalid URL."""
        self._prefix = f"{settings.prefix}:{identity}:mark:"
        super().__init__(settings)
        self._enter = self._client.register_script(_ENTER)
        self._give_back = self._client.register_script(_GIVE_BACK)

    def enter(self, batch: Sequence[SendRequest]) -> list[MarkResult]:
        """See `Marks.enter`; one round trip."""
        if not batch:
            return []
        arguments: list[str | int] = []
        for mark, content_ms, windows, keep_ms, delay_ms in batch:
            ttl = content_ms if mark.content else 0
            arguments += [mark.member, ttl, delay_ms, keep_ms, len(windows) if mark.receiver else 0]
            if mark.receiver:
                arguments.extend(number for window in windows for number in window)
        keys = self._keys(passing.mark for passing in batch)
        return [MarkResult(number) for number in guarded(self._enter, keys, arguments)]

    def give_back(self, batch: Sequence[Returned]) -> None:
        """See `Marks.give_back`; one round trip."""
        if batch:
            keys = [self._own_key(member) for member, _ in batch]
            guarded(self._give_back, keys, [value for one in batch for value in one])

    def returned(self, members: Sequence[str]) -> list[bool]:
        """See `Marks.returned`; one round trip."""
        if not members:
            return []
        keys = [self._own_key(member) for member in members]
        return [value == b"" for value in guarded(self._client.mget, keys)]

    def _keys(self, marks: Iterable[ReceiverMark]) -> list[str]:
        keys = []
        for mark in marks:
            keys += [f"{self._prefix}c:{mark.content}", f"{self._prefix}r:{mark.receiver}"]
            keys.append(self._own_key(mark.member))
        return keys

    def _own_key(self, member: str) -> str:
        return f"{self._prefix}d:{member}"


class LocalMarks:
    """The twin in one process's memory. Thread-safe; never raises."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        at_most: int = RECEIVERS_AT_MOST,
    ) -> None:
        self._monotonic = monotonic
        self._at_most = at_most
        # Guards the three below, which drop the entry unused for longest.
        self._lock = threading.Lock()
        self._contents: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Content to the delivery that marked it, and the mark's end in milliseconds."""
        self._receivers: OrderedDict[str, dict[str, float]] = OrderedDict()
        """Receiver to its deliveries, with the time at which each may go."""
        self._places: OrderedDict[str, ReceiverMark | None] = OrderedDict()
        """Delivery to its marks; None: it gave them back."""

    def enter(self, batch: Sequence[SendRequest]) -> list[MarkResult]:
        with self._lock:
            now = self._monotonic() * 1_000
            return [self._pass(passing, now) for passing in batch]

    def give_back(self, batch: Sequence[Returned]) -> None:
        with self._lock:
            for member, _ in batch:
                mark = self._places.get(member)
                if mark is not None:
                    self._remove(mark)
                self._note(member, None)

    def returned(self, members: Sequence[str]) -> list[bool]:
        with self._lock:
            return [member in self._places and self._places[member] is None for member in members]

    def makers(self, batch: Sequence[SendRequest]) -> list[str]:
        """Returns the deliveries whose marks may stop these, each once."""
        with self._lock:
            found: dict[str, None] = {}
            for passing in batch:
                maker, _ = self._contents.get(passing.mark.content, ("", 0.0))
                found.update(dict.fromkeys(self._receivers.get(passing.mark.receiver, ())))
                found.update({maker: None} if maker else {})
            return list(found)

    def _remove(self, mark: ReceiverMark) -> None:
        if self._contents.get(mark.content, ("", 0.0))[0] == mark.member:
            del self._contents[mark.content]
        self._receivers.get(mark.receiver, {}).pop(mark.member, None)

    def _note(self, member: str, mark: ReceiverMark | None) -> None:
        self._places[member] = mark
        _bound(self._places, member, 2 * self._at_most)

    def _pass(self, passing: SendRequest, now: float) -> MarkResult:
        mark, at = passing.mark, now + passing.delay_ms
        maker, until = self._contents.get(mark.content, ("", 0.0))
        marked = bool(mark.content and passing.content_ms) and until > now
        if marked and maker != mark.member:
            return MarkResult.REPEAT
        times = self._receivers.get(mark.receiver, {})
        counted = mark.member in times or not (mark.receiver and passing.windows)
        if not counted and any(_full(times, window, at) for window in passing.windows):
            return MarkResult.ABOVE
        if mark.content and passing.content_ms and not marked:
            self._contents[mark.content] = (mark.member, at + passing.content_ms)
            _bound(self._contents, mark.content, self._at_most)
        if not counted:
            kept = {m: t for m, t in times.items() if t > now - passing.keep_ms}
            self._receivers[mark.receiver] = kept | {mark.member: at}
            _bound(self._receivers, mark.receiver, self._at_most)
        made = not counted or (bool(mark.content and passing.content_ms) and not marked)
        if made:
            self._note(mark.member, mark)
        return MarkResult.MARKED if made else MarkResult.KNOWN


def _full(times: dict[str, float], window: Window, at: float) -> bool:
    """Returns whether one more at `at` would exceed the window's limit in some stretch of its length."""
    near = sum(at - window.span_ms < t < at + window.span_ms for t in times.values())
    return near >= window.most


def _bound(kept: OrderedDict[str, Any], name: str, at_most: int) -> None:
    kept.move_to_end(name)
    while len(kept) > at_most:
        kept.popitem(last=False)
