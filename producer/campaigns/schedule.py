"""Due times of campaigns: once, or by a cron expression on a zone's clock.

    a time that the clock shows twice    runs once, at the first
    a time that the clock skips          runs once, at the next time that the clock shows

Two skipped times, or a skipped one and the one after it, that fall together are one run.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from backends.toml_text import did_you_mean
from producer.campaigns.contract import CampaignRefused, CampaignSchedule

_MS: Final = 1_000
_FIELDS: Final = 5
_MOST_STEPS: Final = 200
"""Times of an expression that may fall on or before the time asked for, about a change of the clock."""
_FIRST_YEAR: Final = 2000
_LAST_YEAR: Final = 9998
"""Each clock can show a time of these years; those of the years 1 and 9999 only some."""
_LONGEST_SKIP: Final = timedelta(hours=25)
"""No clock was put forward by more: Samoa skipped a day in 2011."""


def zone_of(name: str) -> ZoneInfo:
    """Returns a time zone. Raises CampaignRefused."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = did_you_mean(name, available_timezones())
        raise CampaignRefused(
            f"there is no time zone {name!r}{hint or '; give a name such as Asia/Shanghai'}"
        ) from None


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """Returns the instant in UTC at which the zone's clock first shows `local` (without a zone), or the
    first time after it if the clock skips it."""
    at = local.replace(tzinfo=zone, fold=0)
    instant = at.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local:
        return instant
    return _end_of_gap(at, zone)


def _end_of_gap(at: datetime, zone: ZoneInfo) -> datetime:
    """Returns the instant at which the clock was put forward over `at`."""
    # PEP 495: in a gap, fold 0 reads the offset before it, fold 1 the one after it.
    before, after = at.utcoffset(), at.replace(fold=1).utcoffset()
    late = at.astimezone(UTC)
    early = late - ((after or timedelta()) - (before or timedelta()))
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) // 2
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late.replace(microsecond=0)


def once_at(text: str, zone: ZoneInfo) -> int:
    """Returns epoch milliseconds of `2026-12-24 09:00` on the zone's clock, or of a time with an offset.
    Raises CampaignRefused."""
    try:
        written = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise CampaignRefused(
            f"{text!r} is no time: write 2026-12-24 09:00, or 2026-12-24T09:00+08:00"
        ) from None
    if not _FIRST_YEAR <= written.year <= _LAST_YEAR:
        raise CampaignRefused(
            f"{text!r} is out of range: give a year from {_FIRST_YEAR} to {_LAST_YEAR}"
        )
    instant = written if written.tzinfo else instant_of(written, zone)
    return int(instant.timestamp() * _MS)


def next_due(schedule: CampaignSchedule, after_ms: int) -> int | None:
    """Returns the first due time after `after_ms`; None if there is none. Raises CampaignRefused."""
    if not schedule.cron:
        return schedule.at if schedule.at > after_ms else None
    zone = zone_of(schedule.zone)
    after = datetime.fromtimestamp(after_ms / _MS, UTC)
    # Times that a skip moves behind `after` are written before it.
    start = after.astimezone(zone).replace(tzinfo=None) - _LONGEST_SKIP
    for local in _times(schedule.cron, start):
        instant = instant_of(local, zone)
        if instant > after:
            return int(instant.timestamp() * _MS)
    return None


def _times(cron: str, start: datetime) -> islice[datetime]:
    """Returns the times of an expression on a clock that is never put forward or back."""
    if len(cron.split()) != _FIELDS:
        raise CampaignRefused(f"cron {cron!r}: write five fields: minute hour day month weekday")
    try:
        return islice(CronSim(cron, start), _MOST_TIMES)
    except CronSimError as exc:
        raise CampaignRefused(f"cron {cron!r}: {exc}; write it as in `0 9 * * MON-FRI`") from None


_MOST_TIMES: Final = _MOST_STEPS + 2 * int(_LONGEST_SKIP.total_seconds()) // 60
"""An expression of each minute has so many times within twice the longest skip."""
