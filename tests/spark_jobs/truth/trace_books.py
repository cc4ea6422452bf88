"""The trace topic, read record by record, beside the book of the leak."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracing.record_headers import END, FIRST, LIFE


@dataclass
class Life:
    """One life of one process, by its records."""

    numbers: set[int] = field(default_factory=set)
    ended_at: int | None = None
    """The number behind its last event, from its end; None: it was killed."""

    @property
    def missing(self) -> int:
        """Returns the events that are known to be missing. Nobody can say how many a killed life wrote
        behind its last record."""
        end = self.ended_at if self.ended_at is not None else max(self.numbers, default=-1) + 1
        return end - len(self.numbers)


@dataclass(frozen=True)
class Removed:
    """One event that the leak took."""

    life: str
    number: int
    key: str
    stage: str


def lives_of(messages: Iterable[Any]) -> dict[str, Life]:
    """Returns the lives that wrote these records of the trace topic."""
    lives: dict[str, Life] = defaultdict(Life)
    for message in messages:
        headers = dict(message.headers() or ())
        life = lives[headers[LIFE].decode()]
        first, count = int(headers[FIRST]), len(json.loads(message.value()))
        life.numbers |= set(range(first, first + count))
        if END in headers:
            life.ended_at = first + count
    return dict(lives)


def settled_keys(messages: Iterable[Any]) -> set[str]:
    """Returns the delivery keys whose SENT is in the trace."""
    return {
        event["delivery_key"]
        for message in messages
        for event in json.loads(message.value())
        if event["stage"] == "settled" and event.get("state") == "SENT"
    }


def removed_in(folder: Path) -> Iterator[Removed]:
    """Yields what the leaks of all processes wrote down."""
    for book in folder.glob("removed-*.jsonl"):
        for line in book.read_text().splitlines():
            yield Removed(*json.loads(line))


def countable(removed: Iterable[Removed], lives: dict[str, Life]) -> int:
    """Returns how many of the removed events can be known to be missing."""
    return sum(_countable(one, lives.get(one.life)) for one in removed)


def _countable(one: Removed, life: Life | None) -> bool:
    if life is None:
        return False
    return life.ended_at is not None or one.number < max(life.numbers, default=-1)
