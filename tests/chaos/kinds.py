"""The kinds of faults, and how many of each a run has unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tests.chaos.points import Point


class Kind(StrEnum):
    """What is done to whom; the texts stand in reports."""

    KILL = "kill -9 of a worker"
    KILL_CLAIM = "kill -9 before the claim commits"
    KILL_CALL = "kill -9 after the claim, before the call"
    KILL_ANSWER = "kill -9 after the answer, before SENT"
    KILL_RECOVERY = "kill -9 of a recovery"
    KILL_TAKE = "kill -9 of a recovery before its take commits"
    KILL_RESEND = "kill -9 of a recovery after its resend's answer"
    KILL_RESOLVE = "kill -9 of a recovery that has found out"
    DRAIN = "SIGTERM on full queues"
    STOP = "SIGSTOP past the lease"
    STOP_RECOVERY = "SIGSTOP of a recovery past its lease"
    REBALANCE = "rebalance mid-batch"
    POISON = "poison"
    SLOW = "TTL passes in the queue"
    STALE = "TTL passes in retry"
    FLUSH = "Redis FLUSHALL"
    REDIS_DOWN = "Redis down"
    OUTAGE = "PostgreSQL immediate stop mid-claim"
    CUT = "a commit's reply cut"
    BROKER = "Kafka restart"
    BROKER_DOWN = "broker down 30 s"
    RESETS = "provider accepts, then resets"
    ERRORS = "provider accepts, then says 500"
    HANGS = "provider accepts, never answers"
    LIMITS = "provider's 429 burst"
    RESEND = "produced again while the original is in flight"
    MANUAL = "manual retry races the automatic one"
    OFFSETS = "all workers killed, committed offsets deleted"
    BACKLOG = "ordered backlog"
    REDIS_AWAY = "Redis away 60 s under retries"
    NO_RECOVERY = "no recovery for a lease"
    PAUSED = "a person pauses a lane"


COUNTS: Final[Mapping[Kind, int]] = {
    Kind.KILL: 12,
    Kind.KILL_CLAIM: 3,
    Kind.KILL_CALL: 3,
    Kind.KILL_ANSWER: 4,
    Kind.KILL_RECOVERY: 3,
    Kind.KILL_TAKE: 2,
    Kind.KILL_RESEND: 3,
    Kind.KILL_RESOLVE: 3,
    Kind.DRAIN: 2,
    Kind.STOP: 3,
    Kind.STOP_RECOVERY: 1,
    Kind.REBALANCE: 2,
    Kind.POISON: 2,
    Kind.SLOW: 1,
    Kind.STALE: 1,
    Kind.FLUSH: 3,
    Kind.REDIS_DOWN: 1,
    Kind.OUTAGE: 2,
    Kind.CUT: 2,
    Kind.BROKER: 1,
    Kind.BROKER_DOWN: 1,
    Kind.RESETS: 2,
    Kind.ERRORS: 1,
    Kind.HANGS: 1,
    Kind.LIMITS: 2,
    Kind.RESEND: 2,
    Kind.MANUAL: 2,
    Kind.OFFSETS: 1,
    Kind.BACKLOG: 1,
    Kind.REDIS_AWAY: 1,
    Kind.NO_RECOVERY: 1,
    Kind.PAUSED: 2,
}
"""Some 36 kills and 32 kinds in all."""

POINTS: Final[Mapping[Kind, Point]] = {
    Kind.KILL_CLAIM: Point.CLAIM,
    Kind.KILL_CALL: Point.CALL,
    Kind.KILL_ANSWER: Point.ANSWER,
    Kind.KILL_TAKE: Point.TAKE,
    Kind.KILL_RESEND: Point.ANSWER,
    Kind.KILL_RESOLVE: Point.QUESTION,
}
"""Kills at a named point of the victim's code."""

OF_RECOVERY: Final = frozenset(
    {Kind.KILL_RECOVERY, Kind.KILL_TAKE, Kind.KILL_RESEND, Kind.KILL_RESOLVE, Kind.STOP_RECOVERY}
)
"""Whose victim is a recovery."""
ALL_OF: Final = frozenset({Kind.OFFSETS, Kind.NO_RECOVERY})
"""Kill every process of a pack."""
DRAINED: Final = frozenset({Kind.BACKLOG, Kind.REDIS_AWAY, Kind.NO_RECOVERY})
"""Bring notifications along that all have to be sent, once the fault is over or during it."""
KILLS: Final = frozenset({Kind.KILL, Kind.KILL_RECOVERY, *ALL_OF, *POINTS})
STOPS: Final = frozenset({Kind.STOP, Kind.STOP_RECOVERY})
ILLS: Final = frozenset({Kind.RESETS, Kind.ERRORS, Kind.HANGS, Kind.LIMITS})
"""What ails the provider, whoever calls."""
STANDSTILLS: Final = frozenset({Kind.OUTAGE, Kind.BROKER})
"""Take a server away without which no delivery goes on. How long it takes to come back is the machine's."""
OUTAGES: Final = frozenset({Kind.OUTAGE, Kind.CUT})
"""What takes the database away from a worker."""
