"""Pace of a run: rows a second, and the hours of the day."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from policy.gates import DAY_MINUTES, minutes_of
from producer.campaigns.contract import CampaignLimits, CampaignRefused
from producer.campaigns.schedule import zone_of

_SAVED_S: Final = 0.2
"""Time whose rows may go at once."""
_MS: Final = 1_000


class SendingPace:
    """For one thread."""

    def __init__(self, rate_per_s: float, now: float) -> None:
        """`now` is monotonic."""
        self._rate = rate_per_s
        self._most = max(1.0, rate_per_s * _SAVED_S)
        self._saved = min(1.0, self._most)
        self._at = now

    def allowed(self, now: float) -> int:
        """Returns the number of rows that may go now."""
        self._saved = min(self._most, self._saved + max(0.0, now - self._at) * self._rate)
        self._at = now
        return int(self._saved)

    def take(self, rows: int) -> None:
        """Counts rows that go."""
        self._saved -= rows


def minutes_in(hours: str) -> tuple[int, int]:
    """Returns `09:00-21:00` as minutes of the day. Raises CampaignRefused."""
    try:
        return minutes_of(hours)
    except ValueError:
        raise CampaignRefused(f"{hours!r} are no hours: write 09:00-21:00") from None


def is_open(limits: CampaignLimits, zone: str, now_ms: int) -> bool:
    """Returns whether rows may go at this hour. Hours that end before they begin pass midnight."""
    if not limits.hours:
        return True
    begin, end = minutes_in(limits.hours)
    local = datetime.fromtimestamp(now_ms / _MS, UTC).astimezone(zone_of(zone))
    minute = local.hour * 60 + local.minute
    if begin < end:
        return begin <= minute < end
    return minute >= begin or minute < end % DAY_MINUTES
