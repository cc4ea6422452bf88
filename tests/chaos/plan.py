"""What a seed stands for: the faults of a run and its traffic. Pure; the same seed plans the same run.

Moments are given by progress (the share of all deliveries that the ledger has settled) and a further
wait: on a slower machine the same faults hit the same stretch of the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LANES = ("webhook.verification", "webhook.notice", "webhook.marketing")
ORDERED = "webhook.notice"
FICKLE = "webhook.marketing"
"""The lane whose receivers the provider sometimes refuses or leaves without an answer."""
FICKLE_RECEIVER = "fickle-"

MESSAGES = 50_000
THREADS = 8
"""Of each lane's pool, in each worker."""
LEASE_S = 3.0
TIMEOUT_MS = 5_000

_FIRST, _LAST = 0.03, 0.93
"""Faults lie between these shares of the run: the last still has traffic behind it."""
_WAIT_S = 0.5
_SHARES = (0.3, 0.4, 0.3)
_ORDERED_SHARE = 0.95
_PER_KEY = 25
_REPEATED = 0.01


class Kind(StrEnum):
    """What is done to whom."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    FLUSH = "Redis FLUSHALL"
    OUTAGE = "PostgreSQL immediate stop"
    BROKER = "Kafka restart"


@dataclass(frozen=True)
class Fault:
    """One fault that shall be done."""

    number: int
    kind: Kind
    at: float
    """Share of the deliveries that are settled when its turn comes."""
    wait_s: float
    """And then so much later."""
    victim: float
    """In [0, 1): which of the workers that run then."""
    down_s: float
    """Until the worker or server is started again, or the worker goes on."""
    same_name: bool
    """Whether the killed worker's successor takes its id."""


@dataclass(frozen=True)
class Extent:
    """How much of everything."""

    messages: int = MESSAGES
    kills: int = 20
    stops: int = 3
    flushes: int = 3
    outages: int = 2
    brokers: int = 1


@dataclass(frozen=True)
class Draft:
    """One notification to be produced; `again`: instead, one produced earlier is produced once more."""

    lane: str = ""
    receivers: int = 1
    ordering_key: str | None = None
    again: bool = False


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    seed: int
    extent: Extent
    faults: tuple[Fault, ...]
    deliveries: int
    """That the traffic comes to; repeats add none."""

    def drafts(self) -> Iterator[Draft]:
        """The traffic, in order."""
        return _drafts(self.seed, self.extent.messages)


def plan(seed: int, extent: Extent) -> Plan:
    """The run that this seed stands for."""
    deliveries = sum(d.receivers for d in _drafts(seed, extent.messages) if not d.again)
    return Plan(seed, extent, tuple(_faults(seed, extent)), deliveries)


def extent_of(environment: Mapping[str, str]) -> Extent:
    """MESSAGES, KILLS, STOPS, FLUSHES, OUTAGES and BROKERS, where given."""
    names = ("messages", "kills", "stops", "flushes", "outages", "brokers")
    given = {name: environment.get(name.upper(), "") for name in names}
    changes: dict[str, Any] = {name: int(value) for name, value in given.items() if value}
    return Extent(**changes)


def _faults(seed: int, extent: Extent) -> Iterator[Fault]:
    luck = random.Random(f"faults/{seed}")
    kinds = [
        *[Kind.KILL] * extent.kills,
        *[Kind.STOP] * extent.stops,
        *[Kind.FLUSH] * extent.flushes,
        *[Kind.OUTAGE] * extent.outages,
        *[Kind.BROKER] * extent.brokers,
    ]
    luck.shuffle(kinds)
    moments = sorted(luck.uniform(_FIRST, _LAST) for _ in kinds)
    for number, (kind, at) in enumerate(zip(kinds, moments, strict=True), 1):
        yield Fault(
            number,
            kind,
            at=round(at, 4),
            wait_s=round(luck.uniform(0, _WAIT_S), 3),
            victim=luck.random(),
            down_s=round(_down_s(kind, luck), 3),
            same_name=luck.random() < 0.5,
        )


def _down_s(kind: Kind, luck: random.Random) -> float:
    match kind:
        case Kind.KILL:
            return luck.uniform(0.0, 3.0)
        case Kind.STOP:
            return luck.uniform(LEASE_S * 1.3, LEASE_S * 3)
        case Kind.OUTAGE:
            return luck.uniform(1.0, 5.0)
        case _:
            return 0.0


def _drafts(seed: int, messages: int) -> Iterator[Draft]:
    luck = random.Random(f"traffic/{seed}")
    keys = max(messages // _PER_KEY, 10)
    for number in range(messages):
        if number and luck.random() < _REPEATED:
            yield Draft(again=True)
            continue
        lane = luck.choices(LANES, _SHARES)[0]
        many = luck.random() < 0.15 and lane != LANES[0]
        ordered = lane == ORDERED and luck.random() < _ORDERED_SHARE
        yield Draft(
            lane,
            receivers=luck.randint(2, 5) if many else 1,
            ordering_key=f"line-{luck.randrange(keys)}" if ordered else None,
        )
