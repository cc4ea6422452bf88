"""What some faults produce beside the traffic, so that there is something for them to strike."""

from __future__ import annotations

from collections.abc import Sequence

from message.envelope import Notification
from message.ids import new_id
from tests.chaos.kinds import Kind
from tests.chaos.plan import FICKLE, ORDERED, RESENDING
from tests.chaos.weather import AGAIN, BEHIND, CUT_OFF, SLOW, STALE
from tests.harness import Fleet, Sent, notification

MAIN = "main"
"""The account whose provider says what became of a call."""
_COPIES = 3
_WAITING = 60
_BACKLOG_KEYS, _BACKLOG_EACH = 4, 150
_POISON = (b"not an envelope", b"{}", b'{"v":1}', b"\xff\xfe", b"[]", b'{"v":99,"id":"x"}')
_SLOW_TTL_MS, _STALE_TTL_MS = 1_500, 2_500


def produce(fleet: Fleet, kind: Kind) -> list[Sent]:
    """Produce what goes with a fault; everything that Kafka acknowledged. None for most kinds."""
    match kind:
        case Kind.POISON:
            return fleet.send([*_POISON, None], lane=ORDERED)
        case Kind.SLOW:
            return fleet.send(_several(150, FICKLE, SLOW, ttl_ms=_SLOW_TTL_MS))
        case Kind.STALE:
            return fleet.send(_several(60, FICKLE, STALE, ttl_ms=_STALE_TTL_MS))
        case Kind.MANUAL:
            return fleet.send(_several(100, RESENDING, AGAIN))
        case Kind.KILL_TAKE | Kind.KILL_RESEND:
            return fleet.send(_several(60, RESENDING, AGAIN))
        case Kind.REDIS_AWAY | Kind.NO_RECOVERY:
            return fleet.send(_several(100, RESENDING, AGAIN))
        case Kind.BACKLOG:
            return fleet.send(_lines(_BACKLOG_KEYS, _BACKLOG_EACH))
        case Kind.KILL_RESOLVE:
            return fleet.send(_several(60, FICKLE, CUT_OFF))
        case Kind.RESEND:
            return _copies(fleet, _several(40, FICKLE, AGAIN))
        case _:
            return []


def of_paused(fleet: Fleet, lane: str) -> list[Sent]:
    """Produce notifications of a lane that is paused, so that they wait for its resume."""
    return fleet.send([notification(lane, account=MAIN) for _ in range(_WAITING)])


def _several(count: int, lane: str, receiver: str, ttl_ms: int | None = None) -> list[Notification]:
    return [
        notification(lane, receivers=[f"{receiver}{new_id()}"], account=MAIN, ttl_ms=ttl_ms)
        for _ in range(count)
    ]


def _lines(keys: int, each: int) -> list[Notification]:
    """For each of some ordering keys so many, in turn."""
    names = [f"backlog-{new_id()}" for _ in range(keys)]
    return [
        notification(ORDERED, receivers=[f"{BEHIND}{new_id()}"], account=MAIN, ordering_key=name)
        for _ in range(each)
        for name in names
    ]


def _copies(fleet: Fleet, items: Sequence[Notification]) -> list[Sent]:
    """Each on several partitions at once: different workers read it at about the same time."""
    return [sent for number in range(_COPIES) for sent in fleet.send(items, partition=number)]
