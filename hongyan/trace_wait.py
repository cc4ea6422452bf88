"""The wait of `hongyan trace --wait`: until every delivery that is known of a message has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from message.states import OPEN
from message.vocabulary import lane_named
from policy.schema import Guarantee, Policy, TraceLevel

if TYPE_CHECKING:
    from tracing.timeline import DeliveryStory, Moment, Story

_BEFORE: Final = frozenset({"created", "accepted", "appended", "recall_asked"})
"""Moments that may come before any worker's."""
_DEAD_LETTER: Final = "dead_letter"
_LOOK_S: Final = 0.2
_TRACE_S: Final = 2.0
"""Longest wait for the trace of a delivery that has ended: it is written after the ledger."""


def await_end(look: Callable[[], list[Story]], seconds: float, policy: Policy) -> list[Story]:
    """Returns the stories once every delivery has ended and its trace is written, or after the time."""
    deadline, written_by = time.monotonic() + seconds, 0.0
    while True:
        stories, now = look(), time.monotonic()
        if ended(stories, policy):
            written_by = written_by or now + _TRACE_S
            if now > written_by or all(len(d.moments) > 1 for s in stories for d in s.deliveries):
                return stories
        if now > deadline:
            return stories
        time.sleep(_LOOK_S)


def ended(stories: Sequence[Story], policy: Policy) -> bool:
    """Returns whether something is known, and every delivery has ended."""
    known = [(story, delivery) for story in stories for delivery in story.deliveries]
    return bool(known) and all(_has_ended(*one, policy) for one in known)


def _has_ended(story: Story, delivery: DeliveryStory, policy: Policy) -> bool:
    if delivery.row is not None:
        return delivery.row.state not in OPEN
    if _is_dead_letter(story, delivery.moments):
        return True
    lane = lane_named(story.lane)
    if lane is not None and policy.of(lane).guarantee is Guarantee.BEST_EFFORT:
        return _has_passed(delivery.moments, policy.of(lane).trace)
    state = delivery.state or next((m.state for m in reversed(delivery.moments) if m.state), "")
    return bool(state) and state not in OPEN


def _is_dead_letter(story: Story, moments: Sequence[Moment]) -> bool:
    """Returns whether the last moment is the message's dead letter, whose event names no delivery."""
    of_message = [moment for delivery in story.deliveries for moment in delivery.moments]
    put_at = max((m.at for m in of_message if m.what == _DEAD_LETTER), default=None)
    return put_at is not None and all(moment.at <= put_at for moment in moments)


def _has_passed(moments: Sequence[Moment], level: TraceLevel) -> bool:
    """Returns whether a delivery of a `best_effort` lane has ended, as far as the lane's trace can show:
    workers write an event of its end alone, and not all of those below `all`."""
    return level is not TraceLevel.ALL or any(moment.what not in _BEFORE for moment in moments)
