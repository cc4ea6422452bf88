"""The time limits of one call over SMTP: the whole, each step, and the time kept for the reply to the dot.

    started ──connect─greeting─command…─data──▶ before_dot ──final──▶ end

The dot is written by `before_dot` or not at all: the reply to it always has its whole time, since what is
cut off there is in doubt. A step that takes too long ends the call, whatever is left of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Final

DEFAULT_TIMEOUT_S: Final = 60.0
FINAL: Final = "final"


class Timing:
    """Belongs to one call. Times are monotonic, limits in seconds."""

    def __init__(self, limits: Mapping[str, float], started: float) -> None:
        """`limits` has `total`, and by name the steps of channels/accounts/time_limits.py that are
        limited."""
        self.end = started + (limits.get("total") or DEFAULT_TIMEOUT_S)
        self.before_dot = self.end - limits.get(FINAL, 0.0)
        """When what comes before the dot must be over."""
        self._limits = limits

    def until(self, step: str) -> float:
        """When a step that begins now must be over."""
        if step == FINAL:
            return min(self.end, monotonic() + self._limits.get(FINAL, inf))
        return min(self.before_dot, monotonic() + self._limits.get(step, inf))
