"""Limits of messages in so many seconds, of each robot, unless the behaviour `limits` is `off`."""

from __future__ import annotations

from collections import deque
from typing import Final

from simulator.wire import ProtocolContext

_MS: Final = 1_000


class CountingWindow:
    """`count` in `seconds`; more is refused for `silence_s`, or until the window has room."""

    def __init__(
        self, world: ProtocolContext, count: int, seconds: int, silence_s: int = 0
    ) -> None:
        self._world = world
        self._count = count
        self._span_ms = seconds * _MS
        self._silence_ms = silence_s * _MS
        self._taken: deque[int] = deque()
        self._silent_until = 0

    def full(self) -> bool:
        """Takes a place. Returns True if there was none."""
        now_ms = self._world.now_ms()
        while self._taken and self._taken[0] <= now_ms - self._span_ms:
            self._taken.popleft()
        if now_ms < self._silent_until or len(self._taken) >= self._count:
            self._silent_until = max(self._silent_until, now_ms + self._silence_ms)
            return True
        self._taken.append(now_ms)
        return False


class KeyedWindows:
    """The windows of each robot, application or receiver, by its name."""

    def __init__(
        self, world: ProtocolContext, protocol: str, *limits: tuple[int, int], silence_s: int = 0
    ) -> None:
        """`limits`: (count, seconds)."""
        self._world = world
        self._limits = limits if world.behaviour(protocol, "limits", "on") == "on" else ()
        self._silence_s = silence_s
        self._windows: dict[str, list[CountingWindow]] = {}

    def over(self, robot: str) -> bool:
        """Takes a place of the robot. Returns True if there was none."""
        windows = self._windows.get(robot)
        if windows is None:
            windows = self._windows[robot] = [
                CountingWindow(self._world, count, seconds, self._silence_s)
                for count, seconds in self._limits
            ]
        return any(window.full() for window in windows)
