"""The offsets that one step of the ingest reads, and those that are gone. Pure.

A plan is kept before anything is read by it. A step that was killed is done again by the same plan, so the
tables get the same rows under the same version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from message.vocabulary import dead_letter_topic, lane_of_topic, trace_topic
from spark_jobs.positions import PartitionPosition, Positions

DISPATCH, TRACE, DEAD = "dispatch", "trace", "dead"
REMOVED, TOPIC_GONE = "removed", "topic_gone"
LIMITS: Final[Mapping[str, int]] = {DISPATCH: 2_000_000, TRACE: 40_000, DEAD: 200_000}
"""Most offsets of one plan by kind of topic; a record of the trace topic holds up to 250 events."""

Place = tuple[str, str, int]
"""Topic, topic id, partition."""


class Range(msgspec.Struct, frozen=True):
    """Offsets to read: `first` inclusive, `next` exclusive."""

    kind: str
    topic: str
    topic_id: str
    partition: int
    first: int
    next: int
    since: int
    """Every offset from `first` on was written after this time; 0: unknown."""
    at: int
    """Every offset below `next` was written before this time."""

    @property
    def lane(self) -> str | None:
        """The lane of a dispatch topic."""
        return self.topic.partition(".dispatch.")[2] if self.kind == DISPATCH else None

    @property
    def place(self) -> Place:
        """Topic, topic id, partition."""
        return self.topic, self.topic_id, self.partition


class Hole(msgspec.Struct, frozen=True):
    """Offsets that were gone before they were read; `next` None: nobody knows how many."""

    topic: str
    topic_id: str
    lane: str | None
    partition: int
    first: int
    next: int | None
    after: int | None
    before: int | None
    at: int
    reason: str


class Known(msgspec.Struct, frozen=True):
    """End of the reading of one partition so far."""

    topic: str
    topic_id: str
    partition: int
    next: int
    """First offset that was not read."""
    since: int
    """Every offset from `next` on was written after this time; 0: unknown."""
    gone: bool = False
    """Whether a hole tells already that the topic is gone."""


class IngestPlan(msgspec.Struct, frozen=True):
    """One step."""

    version: int
    """Of its commits to every table of the warehouse."""
    run: int
    taken_at: int
    """Time of the positions, epoch milliseconds."""
    ranges: list[Range]
    holes: list[Hole]
    known: list[Known]
    """As it is once the step is done."""
    revision: int = 0
    """Rises when records were removed while the step read them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read and nothing to tell."""
        return not self.ranges and not self.holes

    def of(self, kind: str) -> list[Range]:
        """Returns the ranges of one kind of topic."""
        return [one for one in self.ranges if one.kind == kind]


class _Part(NamedTuple):
    """Step of one partition: the range to read, the holes to record."""

    range: Range | None
    holes: list[Hole]
    since: int


def kind_of(topic: str, prefix: str) -> str | None:
    """Returns the kind of a topic; None for one that is not read."""
    if lane_of_topic(topic, prefix) is not None:
        return DISPATCH
    return {trace_topic(prefix): TRACE, dead_letter_topic(prefix): DEAD}.get(topic)


def make_plan(
    known: Sequence[Known],
    positions: Positions,
    prefix: str,
    *,
    version: int,
    run: int,
    limits: Mapping[str, int] = LIMITS,
) -> IngestPlan:
    """Returns the next step towards the positions; an empty plan once all is read."""
    by_place = {(one.topic, one.topic_id, one.partition): one for one in known}
    live = {_place(one): one for one in positions.partitions if is_live(one)}
    parts = {
        place: _part(kind, one, by_place.get(place), positions.taken_at)
        for place, one in live.items()
        if (kind := kind_of(one.topic, prefix))
    }
    lost = {p: one for p, one in by_place.items() if p not in live and not one.gone}
    ranges = list(_within(limits, [part.range for part in parts.values() if part.range]))
    holes = [hole for part in parts.values() for hole in part.holes]
    holes += [_gone(one, positions.taken_at) for one in lost.values()]
    after = {**by_place, **_after(parts, ranges, live, positions.taken_at)}
    after |= {place: msgspec.structs.replace(one, gone=True) for place, one in lost.items()}
    return IngestPlan(
        version=version,
        run=run,
        taken_at=positions.taken_at,
        ranges=ranges,
        holes=holes,
        known=list(after.values()),
    )


def is_live(position: PartitionPosition) -> bool:
    """Whether the topic is there; positions also name topics that only have committed offsets."""
    return position.end >= 0 and position.first >= 0


def revised(plan: IngestPlan, positions: Positions, written: Iterable[str]) -> IngestPlan | None:
    """Returns the plan without what is gone by now, and with holes in its place; None if nothing is.
    Kinds of topics in `written` have all their rows already."""
    live = {_place(one): one for one in positions.partitions if is_live(one)}
    ranges, holes = [], []
    for one in plan.ranges:
        if one.kind in written:
            ranges.append(one)
            continue
        kept, hole = _rest(one, live.get(one.place), positions.taken_at)
        ranges += [kept] if kept else []
        holes += [hole] if hole else []
    if not holes:
        return None
    return msgspec.structs.replace(
        plan, ranges=ranges, holes=[*plan.holes, *holes], revision=plan.revision + 1
    )


def _rest(
    range_: Range, position: PartitionPosition | None, now: int
) -> tuple[Range | None, Hole | None]:
    """Returns the part of a range that is still there, and the hole in front of it."""
    reason = TOPIC_GONE if position is None else REMOVED
    first = range_.next if position is None else max(range_.first, position.first)
    if first <= range_.first:
        return range_, None
    end = min(first, range_.next)
    hole = _hole(range_.place, range_.lane, (range_.first, end), range_.since, now, reason)
    return (msgspec.structs.replace(range_, first=end) if end < range_.next else None), hole


def _part(kind: str, position: PartitionPosition, known: Known | None, now: int) -> _Part:
    place, lane = _place(position), position.lane
    first, since = (known.next, known.since) if known else (0, 0)
    holes = []
    if known and position.end < known.next:
        # Without topic ids, or after an unclean election: other records have these offsets now.
        holes.append(_hole(place, lane, (first, None), since, now, TOPIC_GONE))
        first, since = position.first, 0
    elif position.first > first:
        holes.append(_hole(place, lane, (first, position.first), since, now, REMOVED))
        first = position.first
    range_ = Range(kind, *place, first=first, next=position.end, since=since, at=now)
    return _Part(range_ if position.end > first else None, holes, since)


def _within(limits: Mapping[str, int], ranges: Sequence[Range]) -> Iterator[Range]:
    """Yields the ranges, shortened alike where those of a kind are more than its limit."""
    for kind, limit in limits.items():
        mine = [one for one in ranges if one.kind == kind]
        total = sum(one.next - one.first for one in mine)
        for one in mine:
            size = one.next - one.first
            share = size if total <= limit else -(-size * limit // total)
            yield msgspec.structs.replace(one, next=one.first + min(size, share))


def _after(
    parts: Mapping[Place, _Part],
    ranges: Sequence[Range],
    live: Mapping[Place, PartitionPosition],
    now: int,
) -> dict[Place, Known]:
    read = {one.place: one.next for one in ranges}
    return {
        place: Known(*place, next=end, since=now if end >= live[place].end else part.since)
        for place, part in parts.items()
        for end in [read.get(place, live[place].end)]
    }


def _gone(known: Known, now: int) -> Hole:
    place = (known.topic, known.topic_id, known.partition)
    lane = known.topic.partition(".dispatch.")[2] or None
    return _hole(place, lane, (known.next, None), known.since, now, TOPIC_GONE)


def _hole(
    place: Place,
    lane: str | None,
    offsets: tuple[int, int | None],
    since: int,
    now: int,
    reason: str,
) -> Hole:
    topic, topic_id, partition = place
    return Hole(
        topic=topic,
        topic_id=topic_id,
        lane=lane,
        partition=partition,
        first=offsets[0],
        next=offsets[1],
        after=since or None,
        before=now,
        at=now,
        reason=reason,
    )


def _place(position: PartitionPosition) -> Place:
    return position.topic, position.topic_id, position.partition
