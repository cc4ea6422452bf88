"""The order of two events of one delivery: they may arrive in either order."""

from __future__ import annotations

from typing import Final, NamedTuple

_AFTER_SENT: Final = frozenset({"DELIVERED", "UNDELIVERED"})
_SENT: Final = "SENT"


class EventEnd(NamedTuple):
    """The fields of an event that order it."""

    state: str
    ended_at: int
    """Epoch milliseconds."""


def supersedes(new: EventEnd, known: EventEnd | None) -> bool:
    """Returns whether `new` replaces `known`. A receipt comes after SENT, whatever their times; otherwise
    the later one wins."""
    if known is None:
        return True
    if new.state in _AFTER_SENT and known.state == _SENT:
        return True
    if new.state == _SENT and known.state in _AFTER_SENT:
        return False
    return new.ended_at > known.ended_at
