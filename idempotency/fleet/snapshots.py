"""Snapshot of a process in its heartbeat row: one bounded JSON text, written with the heartbeat."""

from __future__ import annotations

from typing import Final

import msgspec

MOST_CHARACTERS: Final = 8_000
"""Longest text; further lanes are left out, the idle ones first."""
MOST_NAMES: Final = 20
"""Accounts of one lane that are named."""


class LaneSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One lane in one process."""

    in_flight: int = 0
    """Deliveries claimed and not settled."""
    waiting: int = 0
    """Deliveries read and not claimed."""
    lag: int | None = None
    """Records behind the log's end; None: it reads no partition of the lane."""
    partitions: int = 0
    rate: float = 0.0
    """Deliveries settled a second, since the heartbeat before."""
    open: list[str] = []
    """Accounts whose breaker is not closed."""
    paused: bool = False
    """Whether it obeys a pause."""
    oldest: float = 0.0
    """Age of the oldest record whose offset is not committed, seconds."""

    @property
    def idle(self) -> bool:
        """Whether the lane has nothing to show but its partitions."""
        return not (self.in_flight or self.waiting or self.lag or self.open or self.paused)


class ProcessSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process. Its version is a column of its own."""

    policy: int = 0
    """Number of the policy version that it follows; 0: the file's."""
    lanes: dict[str, LaneSnapshot] = {}
    left_out: int = 0
    """Lanes that found no place."""


def encoded(snapshot: ProcessSnapshot) -> str:
    """Returns the snapshot as text of at most MOST_CHARACTERS."""
    busy = sorted(snapshot.lanes.items(), key=lambda item: (item[1].idle, item[0]))
    lanes = [(lane, msgspec.structs.replace(one, open=one.open[:MOST_NAMES])) for lane, one in busy]
    for kept in range(len(lanes), -1, -1):
        some = ProcessSnapshot(snapshot.policy, dict(lanes[:kept]), len(lanes) - kept)
        text = msgspec.json.encode(some).decode()
        if len(text) <= MOST_CHARACTERS:
            return text
    return ""


def decoded(text: str) -> ProcessSnapshot | None:
    """Returns the snapshot; None if there is none, or one of a version that this one cannot read."""
    try:
        return msgspec.json.decode(text, type=ProcessSnapshot) if text else None
    except msgspec.DecodeError:
        return None
