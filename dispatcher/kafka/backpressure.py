"""Back-pressure: pauses and resumes a lane's partitions by the records it has in the worker.

`pause()` discards prefetched data, so there is hysteresis: pause at the limit, resume at half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from message.vocabulary import Lane

_RESUME_AT = 0.5


class LaneFlow:
    """Records of one lane that are in the worker and not done. The source's thread writes."""

    __slots__ = ("bytes", "lane", "max_bytes", "max_records", "paused", "records")

    def __init__(self, lane: Lane, max_records: int, max_bytes: int) -> None:
        self.lane = lane
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.records = 0
        self.bytes = 0
        self.paused = False

    def add(self, size: int) -> None:
        """A record of `size` bytes came in."""
        self.records += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """A record of `size` bytes is done."""
        self.records -= 1
        self.bytes -= size

    def wants_pause(self) -> bool:
        """Returns whether the lane should be paused, by its present state."""
        share = _RESUME_AT if self.paused else 1.0
        full = self.records >= max(self.max_records * share, 1)
        return full or self.bytes >= self.max_bytes * share


class Backpressure:
    """All lanes of a worker."""

    def __init__(self, limits: Mapping[Lane, int], max_bytes: int) -> None:
        share = max_bytes // max(len(limits), 1)
        self._lanes = {lane: LaneFlow(lane, records, share) for lane, records in limits.items()}

    def __getitem__(self, lane: Lane) -> LaneFlow:
        return self._lanes[lane]

    def __iter__(self) -> Iterator[LaneFlow]:
        return iter(self._lanes.values())

    def changes(self, closed: frozenset[Lane]) -> list[LaneFlow]:
        """Returns lanes that must pause or resume now; `closed` ones pause whatever they hold."""
        changed = []
        for flow in self._lanes.values():
            wanted = flow.lane in closed or flow.wants_pause()
            if wanted is not flow.paused:
                flow.paused = wanted
                changed.append(flow)
        return changed
