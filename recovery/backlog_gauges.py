"""Gauges of the backlog. Stale numbers are not shown: 0 would mean that nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from backends.metrics import recovery_families
from backends.metrics.readings import Reading
from idempotency.recovery.contract import DueBacklog

_MS: Final = 1_000
_FAMILIES: Final = (
    recovery_families.DUE,
    recovery_families.UNKNOWN,
    recovery_families.OLDEST_DUE_SECONDS,
    recovery_families.OLDEST_UNKNOWN_SECONDS,
)


class BacklogGauges:
    """`Recovery.measure` calls `show`, `LineWatch.count` `show_behind`, each in its thread; any thread may
    call `readings`."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._shown: tuple[float, Sequence[DueBacklog]] = (float("-inf"), ())
        """End of validity, and the measured backlog; replaced as a whole by `show`."""
        self._behind: tuple[float, Mapping[str, int]] = (float("-inf"), {})
        """Likewise, by `show_behind`."""

    def show(self, backlog: Sequence[DueBacklog], valid_s: float) -> None:
        """Shows this backlog for `valid_s` seconds."""
        self._shown = self._monotonic() + valid_s, backlog

    def show_behind(self, lines: Mapping[str, int], valid_s: float) -> None:
        """Shows, per lane, the number of ordering keys that wait for a head, for `valid_s` seconds."""
        self._behind = self._monotonic() + valid_s, lines

    def readings(self) -> Iterable[Reading]:
        """Yields the numbers that are still valid."""
        now = self._monotonic()
        valid_until, backlog = self._shown
        for lane, due, doubted, due_ms, doubt_ms in backlog if now < valid_until else ():
            values = (due, doubted, due_ms / _MS, doubt_ms / _MS)
            for family, value in zip(_FAMILIES, values, strict=True):
                yield Reading(family, {"lane": lane}, value)
        valid_until, lines = self._behind
        for lane, count in lines.items() if now < valid_until else ():
            yield Reading(recovery_families.BEHIND, {"lane": lane}, count)
