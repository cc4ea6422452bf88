"""The size of a run, and the deal of each number. A seed fixes all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

COMMITTED = 5_000
REFUSED_SHARE = 5
"""Committed transactions for each one that is rolled back."""
SILENT = 0.1
"""Share of look-back transactions whose business never tells the end: the check finds it out."""


class Way(StrEnum):
    """How a notification gets in."""

    OUTBOX = "outbox"
    AT_ONCE = "at_once"
    """The outbox, published by the business's own process after the commit."""
    LOOKBACK = "lookback"
    GATEWAY = "gateway"


WEIGHTS: Mapping[Way, int] = {Way.OUTBOX: 35, Way.AT_ONCE: 20, Way.LOOKBACK: 30, Way.GATEWAY: 15}


class Deal(NamedTuple):
    """One business transaction."""

    number: int
    way: Way
    commits: bool
    silent: bool

    @property
    def name(self) -> str:
        """The business id, and the receiver."""
        return name_of(self.number)


class Extent(msgspec.Struct, frozen=True):
    """One run."""

    seed: int
    committed: int
    refused: int

    @property
    def total(self) -> int:
        """All business transactions."""
        return self.committed + self.refused

    def deal(self, number: int) -> Deal:
        """Returns the deal of a number from 0 to `total` - 1."""
        luck = random.Random(f"{self.seed}/{number}")
        (way,) = luck.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))
        commits = self._refused_before(number) == self._refused_before(number + 1)
        return Deal(number, way, commits, silent=luck.random() < SILENT)

    def deals(self, place: int = 0, places: int = 1) -> Iterator[Deal]:
        """Yields the deals of one business process of so many, or all."""
        return map(self.deal, range(place, self.total, places))

    def _refused_before(self, number: int) -> int:
        """Returns how many of the first `number` are rolled back: they are spread evenly."""
        return number * self.refused // self.total


def name_of(number: int) -> str:
    """Returns the business id of a number."""
    return f"order-{number}"


def extent_of(environment: Mapping[str, str]) -> Extent:
    """Returns the extent that SEED and MESSAGES ask for."""
    seed = int(environment.get("SEED") or random.randrange(1_000_000))
    committed = int(environment.get("MESSAGES") or COMMITTED)
    return Extent(seed, committed, committed // REFUSED_SHARE)
