"""The badge of a state: its word, and a colour that says how grave it is."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

from admin.web.foreign_text import with_marks_shown

_LEVELS: Final = {
    "good": "SENT DELIVERED ACTIVE RUNNING DONE RESENT FORWARDED",
    "info": (
        "IN_FLIGHT SCHEDULED OPEN RETRY DRAINING STARTING FREEZING CHECKING CANARY ENDING APPLYING APPLIED"
        " NEW PREPARED EARLY_COMMIT EARLY_ROLLBACK COMMITTED"
    ),
    "warn": "UNKNOWN PAUSED PREVIEW WAITING ASKED",
    "bad": "PARKED REJECTED EXPIRED UNDELIVERED DEAD LOST firing FAILED REFUSED UNRESOLVED",
}
LEVEL_OF: Final = {state: level for level, states in _LEVELS.items() for state in states.split()}
"""Levels of states; any other state is quiet."""
_KEPT: Final = 512
"""Badges that are kept as they were written."""


def badge(state: object) -> Markup:
    """Returns the badge of a delivery's, process's, job's or user's state."""
    return _badge(str(state))


@lru_cache(_KEPT)
def _badge(state: str) -> Markup:
    text = escape(with_marks_shown(state))
    return Markup('<span class="badge {}">{}</span>').format(LEVEL_OF.get(state, "quiet"), text)
