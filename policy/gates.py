"""Gates of a lane: quiet hours, a cap per receiver, no content twice. Data only.

Verification is exempt by default, since somebody waits for it. A table of the kind or the lane applies a
gate there with `exempt = false`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

Minute = int
"""Minute of the day, from 0; 1,440 is midnight at its end."""
DAY_MINUTES = 24 * 60
_MONTH_MS = 31 * 24 * 3_600_000


class QuietAction(StrEnum):
    """Handling of a delivery that comes in quiet hours."""

    HOLD = "hold"
    DROP = "drop"


class Scope(StrEnum):
    """Lanes that count together."""

    LANE = "lane"
    CHANNEL = "channel"


class QuietHours(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times at which nobody shall be disturbed."""

    windows: list[Annotated[str, msgspec.Meta(pattern=r"^\d\d:\d\d-\d\d:\d\d$")]] = []
    """`HH:MM-HH:MM` by the zone's clock, the end not included; one that ends before it begins passes
    midnight. None: no quiet hours."""
    zone: str = "Asia/Shanghai"
    """As in the IANA time zone database."""
    action: QuietAction = QuietAction.HOLD
    exempt: bool = False

    @property
    def holds(self) -> bool:
        """Whether the gate applies."""
        return bool(self.windows) and not self.exempt


class CountLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `most` deliveries in any span of `span_ms`."""

    most: Annotated[int, msgspec.Meta(ge=1, le=1_000)]
    span_ms: Annotated[int, msgspec.Meta(ge=1_000, le=_MONTH_MS)]


class FrequencyCap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on the deliveries of one receiver; more are dropped."""

    limits: Annotated[list[CountLimit], msgspec.Meta(max_length=8)] = []
    """All of them apply. None: no cap."""
    scope: Scope = Scope.LANE
    """`channel`: counted together with the channel's other lanes that set it."""
    exempt: bool = False

    @property
    def holds(self) -> bool:
        """Whether the gate applies."""
        return bool(self.limits) and not self.exempt


class ContentDedup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal content goes to one receiver in one lane once within a window."""

    window_ms: Annotated[int, msgspec.Meta(ge=0, le=_MONTH_MS)] = 0
    """0: equal content is not dropped."""
    exempt: bool = False

    @property
    def holds(self) -> bool:
        """Whether the gate applies."""
        return self.window_ms > 0 and not self.exempt


def minutes_of(window: str) -> tuple[Minute, Minute]:
    """Returns `22:00-08:00` as minutes of the day, (1320, 480). Raises ValueError for a wrong time."""
    begin, end = (_minute(part) for part in window.split("-"))
    if begin in (end, DAY_MINUTES):
        raise ValueError(f"{window!r} is no stretch of the day")
    return begin, end


def _minute(text: str) -> Minute:
    hours, minutes = (int(part) for part in text.split(":"))
    minute = hours * 60 + minutes
    if minutes > 59 or minute > DAY_MINUTES:
        raise ValueError(f"{text!r} is no time of day")
    return minute
