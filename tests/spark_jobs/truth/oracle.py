"""The oracle of lost deliveries: it derives from the contract alone what the jobs must find, by cause.

It knows what Kafka acknowledged, what the group committed, where the logs begin, what the ledger and the
provider have, which records are dead letters, and what was gone before anybody could ingest it. It knows
nothing of the trace, the warehouse or the jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.harness.wire import Committed, Place, Sent

Offset = tuple[Place, int]
_SHOWN = 5


@dataclass(frozen=True)
class World:
    """All that is known at one moment."""

    rows: Collection[str]
    """Delivery keys with a row in the ledger."""
    accepted: Collection[str]
    """Receivers that the provider accepted something for."""
    committed: Mapping[Place, Committed]
    starts: Mapping[Place, int]
    """The log's start, per partition."""
    dead: Collection[str]
    """Origins of dead letters."""
    recalled: Collection[str]
    """Ids of notifications that a person recalled before they were read."""
    unkept: Collection[str]
    """Topics of lanes without a ledger."""
    never_ingested: Collection[Offset]
    now: int
    """Epoch milliseconds."""


class Finding(NamedTuple):
    """A row of `lost_findings`."""

    subject: str
    cause: str
    lane: str
    status: str


@dataclass
class Expected:
    """Findings that must come, by cause: delivery keys; for `hole` offsets, since some have no name."""

    keys: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    holes: set[Offset] = field(default_factory=set)
    _lost: set[str] = field(default_factory=set)
    """Keys that are lost now."""

    def add(self, sent: Iterable[Sent], world: World) -> None:
        """Adds the losses of this moment. A delivery keeps its cause until it has a row again; then it can
        be lost once more."""
        self._lost.difference_update(world.rows)
        for record in sent:
            if _answered_for(record, world):
                continue
            if (record.place, record.offset) in world.never_ingested:
                self.holes.add((record.place, record.offset))
                continue
            receivers = record.notification.receivers if record.notification else ()
            for key, receiver in zip(record.keys, receivers, strict=True):
                if key not in world.rows and key not in self._lost:
                    self._add_key(key, cause_of(record, receiver, world))

    def _add_key(self, key: str, cause: str) -> None:
        if cause:
            self.keys[cause].add(key)
            self._lost.add(key)


def cause_of(record: Sent, receiver: str, world: World) -> str:
    """Returns the cause for a delivery without a row; empty if it still waits in its time."""
    if receiver in world.accepted:
        return "forgotten"
    if _passed(record, world.committed):
        return "passed"
    if record.offset < world.starts.get(record.place, 0):
        return "removed"
    one = record.notification
    if one is not None and one.ttl_ms is not None and one.created_at + one.ttl_ms < world.now:
        return "unread"
    return ""


def judge(expected: Expected, found: Iterable[Finding], places: Mapping[str, Offset]) -> list[str]:
    """Returns what is wrong, one line each: nothing when precision and recall are 100 % for every cause.

    `places` maps delivery keys to their record's offset.
    """
    by_cause: dict[str, set[str]] = defaultdict(set)
    problems = []
    for one in found:
        if one.subject in by_cause[one.cause]:
            problems.append(f"{one.cause}: {one.subject} is there twice")
        by_cause[one.cause].add(one.subject)
    holes: set[Offset] = set()
    for subject in by_cause.pop("hole", set()):
        holes |= offsets_of(subject, places)
    problems += _differences("hole", expected.holes, holes)
    for cause in sorted({*expected.keys, *by_cause}):
        problems += _differences(cause, expected.keys[cause], by_cause[cause])
    return problems


def offsets_of(subject: str, places: Mapping[str, Offset]) -> set[Offset]:
    """Returns the offsets that a finding is about: of its delivery, or `TOPIC/PARTITION/FIRST-LAST`."""
    if subject in places:
        return {places[subject]}
    topic, partition, span = subject.rsplit("/", 2)
    first, _, last = span.partition("-")
    place = Place(topic, int(partition))
    return {(place, offset) for offset in range(int(first), int(last or first) + 1)}


def _differences(cause: str, wanted: Collection[object], found: Collection[object]) -> list[str]:
    missing, extra = set(wanted) - set(found), set(found) - set(wanted)
    lines = []
    if missing:
        lines.append(f"{cause}: {len(missing)} of {len(wanted)} not found: {_some(missing)}")
    if extra:
        lines.append(f"{cause}: {len(extra)} found and not lost: {_some(extra)}")
    return lines


def _some(items: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, items))[:_SHOWN])


def _passed(record: Sent, committed: Mapping[Place, Committed]) -> bool:
    known = committed.get(record.place)
    return known is not None and known.covers(record.offset)


def _answered_for(record: Sent, world: World) -> bool:
    """Whether no row is expected: a lane without a ledger, a dead letter, a recall."""
    origin = f"{record.place.topic}/{record.place.partition}/{record.offset}"
    one = record.notification
    recalled = one is not None and one.id in world.recalled
    return recalled or record.place.topic in world.unkept or origin in world.dead
