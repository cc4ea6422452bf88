"""Outcome events: none is missing, none tells of what never happened, and repeats carry one id. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from message.states import SETTLED
from tests.chaos.history import Move
from tests.harness.books import Row

_SETTLED = frozenset(state.value for state in SETTLED)


class Announced(NamedTuple):
    """One record of the topic."""

    event_id: str
    key: str
    """The delivery's."""
    state: str
    value: bytes
    """The whole record."""


class Announcements(NamedTuple):
    """Counts of the outcome topic's events."""

    events: int
    """Number of different event ids."""
    repeats: int


def read(values: Iterable[bytes]) -> list[Announced]:
    """Every record of the topic."""
    found = []
    for value in values:
        event = json.loads(value)
        found.append(Announced(event["event_id"], event["delivery_key"], event["state"], value))
    return found


def count(events: Sequence[Announced]) -> Announcements:
    """How many there are."""
    different = len({event.event_id for event in events})
    return Announcements(different, len(events) - different)


def problems(
    events: Sequence[Announced],
    rows: Mapping[str, Row],
    moves: Iterable[Move],
    lanes: Iterable[str],
) -> list[str]:
    """Broken promises about the events of these lanes."""
    announced = frozenset(lanes)
    if not announced:
        return []
    told: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        told[event.key, event.state].add(event.event_id)
    entered, left = Counter[tuple[str, str]](), set()
    for move in moves:
        entered[move.delivery_key, move.state] += 1
        left.add((move.delivery_key, move.source))
    mine = {key: row for key, row in rows.items() if row.lane in announced}
    return [
        *_missing(mine, told, entered),
        *_invented(mine, told, entered, left),
        *_renamed(events),
    ]


def _missing(
    rows: Mapping[str, Row],
    told: Mapping[tuple[str, str], set[str]],
    entered: Mapping[tuple[str, str], int],
) -> Iterator[str]:
    """Ends without an event; the history leaves out what ended well at once, the row has it."""
    wanted = {(key, row.state): 1 for key, row in rows.items() if row.state in _SETTLED}
    for (key, state), times in entered.items():
        if key in rows and state in _SETTLED:
            wanted[key, state] = max(times, wanted.get((key, state), 0))
    for (key, state), times in wanted.items():
        known = len(told.get((key, state), ()))
        if known < times:
            yield f"{key}: ended as {state} {times} times, and the topic has {known} events of it"


def _invented(
    rows: Mapping[str, Row],
    told: Mapping[tuple[str, str], set[str]],
    entered: Mapping[tuple[str, str], int],
    left: set[tuple[str, str]],
) -> Iterator[str]:
    for key, state in told:
        row = rows.get(key)
        known = (key, state) in entered or (key, state) in left
        if row is None or not (known or row.state == state):
            yield f"{key}: announced as {state}, which it never was"


def _renamed(events: Iterable[Announced]) -> Iterator[str]:
    """Repeats that differ, in their id or beside it."""
    first: dict[str, Announced] = {}
    for event in events:
        if first.setdefault(event.event_id, event).value != event.value:
            yield f"{event.key}: two records share the event id {event.event_id} and differ"
    by_rest: dict[str, str] = {}
    for event in first.values():
        rest = json.dumps({**json.loads(event.value), "event_id": ""}, sort_keys=True)
        if by_rest.setdefault(rest, event.event_id) != event.event_id:
            yield f"{event.key}: one event has two ids, {by_rest[rest]} and {event.event_id}"
