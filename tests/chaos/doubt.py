"""What each fault left in doubt, and that it was no more than was promised. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.chaos.books import Hit, LifeBook, Limits
from tests.chaos.history import Move
from tests.chaos.kinds import KILLS, OUTAGES, STOPS

OWNER_DEAD = "owner_dead"
LAPSE = "lease lapsed"
WAKING = ", claimed on waking"
"""Of a process that slept past its lease: before it knew, it claimed once more, and sent none of it."""
_SLACK_MS = 2_000
"""Clocks of two processes, and the time a signal takes."""


class Doubt(NamedTuple):
    """The deliveries that one fault left in doubt in one life of a process."""

    cause: str
    fault: int
    """Number of the fault; 0 for a lease that lapsed without one."""
    worker: str
    left: int
    bound: int


class _Cause(NamedTuple):
    """Something that can leave deliveries of one life in doubt."""

    at_ms: int
    label: str
    fault: int


def in_doubt(
    moves: Iterable[Move], lives: Sequence[LifeBook], hits: Sequence[Hit], limits: Limits
) -> tuple[list[Doubt], list[str]]:
    """Per life and fault the deliveries put in doubt by a lost lease; and those that none explains.

    A delivery belongs to the life of its owner in which it was claimed, and to the last cause in that life
    before it became UNKNOWN.
    """
    causes = {life.number: _causes(life, hits, limits) for life in lives}
    counts: Counter[tuple[int, _Cause]] = Counter()
    strays = []
    for move in moves:
        if move.state != "UNKNOWN" or move.reason != OWNER_DEAD:
            continue
        life = _life_of(move, lives)
        cause = _cause_of(move, causes[life.number]) if life else None
        if life is None or cause is None:
            strays.append(move.delivery_key)
        else:
            counts[life.number, cause] += 1
    names = {life.number: life.worker for life in lives}
    doubts = [
        Doubt(cause.label, cause.fault, names[number], count, limits.in_doubt)
        for (number, cause), count in counts.items()
    ]
    return sorted(doubts, key=lambda d: (d.fault, d.worker)), strays


def problems(doubts: Iterable[Doubt], strays: Iterable[str]) -> list[str]:
    """Those that nothing explains, and faults that left more than may be."""
    return [
        *(f"{key}: in doubt, and no fault explains it" for key in strays),
        *(
            f"{d.cause} of {d.worker} (fault {d.fault}) left {d.left} in doubt, more than {d.bound}"
            for d in doubts
            if d.left > d.bound
        ),
    ]


def _life_of(move: Move, lives: Sequence[LifeBook]) -> LifeBook | None:
    """The latest life of that name that had begun when the row was claimed."""
    fit = [
        life
        for life in lives
        if life.worker == move.owner and life.started_ms <= move.since_ms + _SLACK_MS
    ]
    # Slack is for a claim whose commit was under way at the end; a life that truly fits goes first.
    within = [life for life in fit if life.started_ms <= move.since_ms <= _end(life)]
    return max(within or fit, key=lambda life: life.started_ms, default=None)


def _end(life: LifeBook) -> float:
    return life.ended_ms or float("inf")


def _causes(life: LifeBook, hits: Sequence[Hit], limits: Limits) -> list[_Cause]:
    mine = [h for h in hits if h.life == life.number or life.number in h.lives]
    outages = [h for h in hits if h.fault.kind in OUTAGES and _lived_through(life, h)]
    own = [_Cause(h.at_ms, h.fault.kind.value, h.fault.number) for h in (*mine, *outages)]
    stops = [h for h in (*mine, *outages) if h.fault.kind not in KILLS]
    lapses = [
        _Cause(at, LAPSE, 0)
        for at in life.lapses_ms
        if not any(h.at_ms <= at <= h.until_ms + limits.lease_ms + _SLACK_MS for h in stops)
    ]
    return sorted([*own, *lapses])


def _lived_through(life: LifeBook, hit: Hit) -> bool:
    return life.started_ms <= hit.until_ms and (not life.ended_ms or hit.at_ms <= life.ended_ms)


def _cause_of(move: Move, causes: Sequence[_Cause]) -> _Cause | None:
    before = [c for c in causes if c.at_ms <= move.at_ms]
    if before:
        last = before[-1]
        woke = last.label in STOPS and move.since_ms > last.at_ms + _SLACK_MS
        return last._replace(label=last.label + WAKING) if woke else last
    # A peer may notice a lapse before the worker itself does.
    return next((c for c in causes if c.label == LAPSE), None)
