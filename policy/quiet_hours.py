"""How long quiet hours last, for the worker and for recovery. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from policy.gates import DAY_MINUTES, QuietHours, minutes_of

_MS: Final = 1_000
_MOST_WINDOWS_ON_END: Final = 64
"""Most windows that follow one upon the other; a valid policy leaves some time of the day open."""


def quiet_ms(quiet: QuietHours, now_ms: int) -> int:
    """Returns how many milliseconds quiet hours last from `now_ms` (epoch milliseconds); 0: not quiet."""
    if not quiet.holds:
        return 0
    until = now_ms
    for _ in range(_MOST_WINDOWS_ON_END):
        end = max((e for b, e in _around(quiet, until) if b <= until < e), default=until)
        if end == until:
            break
        until = end
    return until - now_ms


def _around(quiet: QuietHours, now_ms: int) -> Iterator[tuple[int, int]]:
    """Yields the windows that begin today or yesterday in the zone, as epoch milliseconds."""
    zone = _zone(quiet.zone)
    today = datetime.fromtimestamp(now_ms / _MS, zone).date()
    for day in (today - timedelta(days=1), today):
        for window in quiet.windows:
            begin, end = minutes_of(window)
            yield (
                _instant(zone, day.toordinal(), begin),
                _instant(zone, day.toordinal() + (end <= begin), end),
            )


def _instant(zone: ZoneInfo, day: int, minute: int) -> int:
    """Returns a time on the zone's clock in epoch milliseconds; an ambiguous one as with `fold` 0."""
    days, minute = divmod(minute, DAY_MINUTES)
    at = datetime.fromordinal(day + days).replace(
        hour=minute // 60, minute=minute % 60, tzinfo=zone
    )
    return int(at.timestamp() * _MS)


@lru_cache(maxsize=32)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
