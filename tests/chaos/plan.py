"""What a seed stands for: the faults of a run and its traffic. Pure; the same seed plans the same run.

Moments are given by progress (the share of all deliveries that the ledger has settled) and a further
wait: on a slower machine the same faults hit the same stretch of the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.kinds import COUNTS, Kind

LANES = ("webhook.verification", "webhook.notice", "webhook.marketing")
ORDERED = "webhook.notice"
RESENDING = "webhook.verification"
"""`at_least_once`, a third of it through an account that cannot be asked: there doubles are policy."""
FICKLE = "webhook.marketing"
"""`at_most_once`; its receivers the provider sometimes refuses or leaves without an answer."""
FICKLE_RECEIVER = "fickle-"

MESSAGES = 50_000
THREADS = 8
"""Of each lane's pool, in each worker."""
LEASE_S = 3.0
TIMEOUT_MS = 2_000
TTL_MS = 50_000
"""Of what may go through the account that cannot be asked: half of it is waited for its word."""

_FIRST, _LAST = 0.03, 0.93
"""Faults lie between these shares of the run: the last still has traffic behind it."""
_EARLY = 0.3
"""By then the offsets are lost: everything produced so far is read once more."""
_WAIT_S = 0.5
_SHARES = (0.3, 0.4, 0.3)
_ORDERED_SHARE = 0.95
_PER_KEY = 25
_REPEATED = 0.01


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
    """In [0, 1): which of the processes that run then."""
    down_s: float
    """Until the process or server is started again, goes on, or the provider is well."""
    same_name: bool
    """Whether the killed process's successor takes its id."""


@dataclass(frozen=True)
class Extent:
    """How much of everything; `counts` by kind, none: the usual."""

    messages: int = MESSAGES
    counts: tuple[tuple[Kind, int], ...] = tuple(COUNTS.items())


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
    """That the traffic comes to; repeats, and what faults produce, add none."""

    def drafts(self) -> Iterator[Draft]:
        """The traffic, in order."""
        return _drafts(self.seed, self.extent.messages)


def plan(seed: int, extent: Extent) -> Plan:
    """The run that this seed stands for."""
    deliveries = sum(d.receivers for d in _drafts(seed, extent.messages) if not d.again)
    return Plan(seed, extent, tuple(_faults(seed, extent)), deliveries)


def extent_of(environment: Mapping[str, str]) -> Extent:
    """MESSAGES, and FAULTS such as `kill=5 redis_down=1`: only these then. Raises KeyError for a fault
    that there is not."""
    changes: dict[str, Any] = {}
    if messages := environment.get("MESSAGES", ""):
        changes["messages"] = int(messages)
    if faults := environment.get("FAULTS", ""):
        pairs = (word.partition("=") for word in faults.replace(",", " ").split())
        changes["counts"] = tuple((Kind[name.upper()], int(n or 1)) for name, _, n in pairs)
    return Extent(**changes)


def _faults(seed: int, extent: Extent) -> Iterator[Fault]:
    luck = random.Random(f"faults/{seed}")
    kinds = [kind for kind, count in extent.counts for _ in range(count)]
    moments = [(_moment(kind, luck), luck.random(), kind) for kind in kinds]
    for number, (at, _, kind) in enumerate(sorted(moments), 1):
        yield Fault(
            number,
            kind,
            at=round(at, 4),
            wait_s=round(luck.uniform(0, _WAIT_S), 3),
            victim=luck.random(),
            down_s=round(_down_s(kind, luck), 3),
            same_name=luck.random() < 0.5,
        )


def _moment(kind: Kind, luck: random.Random) -> float:
    return luck.uniform(_FIRST, _EARLY if kind is Kind.OFFSETS else _LAST)


def _down_s(kind: Kind, luck: random.Random) -> float:
    match kind:
        case Kind.STOP | Kind.STOP_RECOVERY:
            return luck.uniform(LEASE_S * 1.3, LEASE_S * 3)
        case Kind.OUTAGE | Kind.REDIS_DOWN:
            return luck.uniform(1.0, 5.0)
        case Kind.BROKER_DOWN:
            return 30.0
        case Kind.REDIS_AWAY:
            return 60.0
        case Kind.NO_RECOVERY:
            return luck.uniform(LEASE_S * 1.3, LEASE_S * 2.5)
        case Kind.BACKLOG | Kind.PAUSED:
            return 8.0
        case Kind.BROKER | Kind.FLUSH | Kind.OFFSETS | Kind.POISON | Kind.RESEND:
            return 0.0
        case Kind.SLOW:
            return 4.0
        case Kind.STALE:
            return 6.0
        case _:
            return luck.uniform(0.5, 3.0)


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
