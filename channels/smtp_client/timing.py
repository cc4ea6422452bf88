"""The time limits of one call over SMTP: the whole, each step, and the time kept for the reply to the dot.

    started ──connect─greeting─command…─data──▶ before_dot ──final──▶ end

The dot is written by `before_dot` or not at all. The reply to it always has its whole time: a call cut off
there is in doubt. A step that takes too long ends the call, whatever is left of the whole.
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
        """`limits` has `total`, and by name the limited steps of channels/accounts/time_limits.py."""
        self.end = started + (limits.get("total") or DEFAULT_TIMEOUT_S)
        self.before_dot = self.end - limits.get(FINAL, 0.0)
        """End of the time before the dot."""
        self._limits = limits

    def until(self, step: str) -> float:
        """Returns the deadline of a step that begins now."""
        if step == FINAL:
            return min(self.end, monotonic() + self._limits.get(FINAL, inf))
        return min(self.before_dot, monotonic() + self._limits.get(step, inf))
