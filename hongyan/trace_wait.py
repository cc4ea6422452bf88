"""The wait of `hongyan trace --wait`: until every delivery that is known of a message has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracing.timeline import Story

_OPEN: Final = frozenset({"IN_FLIGHT", "RETRY", "UNKNOWN"})
_LOOK_S: Final = 0.2
_TRACE_S: Final = 2.0
"""Longest wait for the trace of a delivery that has ended: it is written after the ledger."""


def await_end(look: Callable[[], list[Story]], seconds: float) -> list[Story]:
    """Returns the stories once every delivery has ended and its trace is written, or after the time."""
    deadline, written_by = time.monotonic() + seconds, 0.0
    while True:
        stories, now = look(), time.monotonic()
        if ended(stories):
            written_by = written_by or now + _TRACE_S
            if now > written_by or all(len(d.moments) > 1 for s in stories for d in s.deliveries):
                return stories
        if now > deadline:
            return stories
        time.sleep(_LOOK_S)


def ended(stories: Sequence[Story]) -> bool:
    """Whether something is known and no delivery is open; one without a ledger row counts as ended."""
    rows = [delivery.row for story in stories for delivery in story.deliveries]
    return bool(rows) and not any(row is not None and row.state in _OPEN for row in rows)
