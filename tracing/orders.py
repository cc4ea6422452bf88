"""Legal orders of a delivery's trace events: which stage may follow which, under one attempt.

    ∅ ─▶ taken ─▶ settled ─▶ receipt        a retry, its outcome, the provider's report
    ∅ ─▶ owner_dead ─▶ resolved             a worker that died, and the decision on its call

`FOLLOWS` is the one table; docs/trace.md has it, and a test compares them. Events of one attempt are in the
order of their times. An event lost on its way leaves a pair out: `violations` is for whole traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from tracing.events import Stage, TraceEvent

_S = Stage

ASIDE: Final = frozenset(
    {
        # Kafka may have a notification more than once: sent again, read again, replayed.
        *(_S.ACCEPTED, _S.DUPLICATE, _S.CONFLICT),
        # A person may ask for it at any time.
        _S.RECALL_ASKED,
        # Records without a delivery.
        *(_S.DEAD_LETTER, _S.REMOVED),
    }
)
"""Stages that may come at any time and change nothing for the others."""

_WAITS: Final = frozenset(
    {
        # The ends of a delivery that waits in the ledger: by time, a recall or a person, attempts.
        *(_S.EXPIRED, _S.DROPPED, _S.SETTLED),
        # A person wants it sent, or saw it arrive.
        _S.RESOLVED,
    }
)
_CALLED: Final = frozenset({_S.SETTLED, _S.ATTEMPTED, _S.EXPIRED, _S.FENCED, _S.OWNER_DEAD})
"""Ends of a claim."""

FOLLOWS: Final[Mapping[Stage | None, frozenset[Stage]]] = {
    # None: the first event of an attempt. A worker's claim has no event of its own.
    None: frozenset(
        {
            *_CALLED,
            *(_S.CLAIMED, _S.TAKEN, _S.FOUND, _S.HANDED_OVER),
            *(_S.EXPIRED, _S.DROPPED, _S.PARKED, _S.HELD, _S.BEHIND),
            # The row counts one attempt less than an event before it, where no call was made.
            _S.RESOLVED,
            # A receipt may come before the outcome of the call; a recall may end what was given back.
            *(_S.RECEIPT, _S.RECALLED),
        }
    ),
    _S.CLAIMED: _CALLED | {_S.HANDED_OVER},
    _S.HANDED_OVER: _CALLED,
    # Given back unstarted (its lane was paused, its account shut), then taken once more.
    _S.TAKEN: _CALLED | _WAITS | {_S.TAKEN, _S.HELD, _S.BEHIND, _S.PARKED},
    # The call after it has the next attempt, unless no such call was made.
    _S.ATTEMPTED: _CALLED,
    # Of RETRY: it waits, or goes on under the same attempt where no call was made. Of UNKNOWN: a decision.
    _S.SETTLED: _CALLED
    | _WAITS
    | {
        *(_S.RECEIPT, _S.RECEIPT_CONTRADICTED, _S.RECALLED),
        # No call was made, so its next reader or a recovery has the same attempt.
        *(_S.TAKEN, _S.HELD, _S.BEHIND, _S.PARKED),
    },
    _S.RESOLVED: _WAITS
    | {
        *(_S.RECEIPT, _S.RECEIPT_CONTRADICTED, _S.RECALLED),
        # The worker that was declared dead wakes; or a person had a row sent whose call was not counted.
        *(_S.FENCED, _S.TAKEN, _S.OWNER_DEAD),
    },
    _S.OWNER_DEAD: _WAITS | {_S.FENCED, _S.RECEIPT, _S.RECEIPT_CONTRADICTED},
    _S.FENCED: _CALLED | _WAITS | {_S.RECEIPT, _S.RECEIPT_CONTRADICTED, _S.TAKEN, _S.RECALLED},
    # A call in doubt ends by a receipt, and its worker wakes after that. It may have come before the worker
    # was declared dead.
    _S.RECEIPT: frozenset(
        {
            *(_S.RECEIPT, _S.RECEIPT_CONTRADICTED, _S.RECALLED, _S.FENCED, _S.SETTLED),
            _S.OWNER_DEAD,
        }
    ),
    _S.RECEIPT_CONTRADICTED: frozenset(
        {_S.RECEIPT, _S.RECEIPT_CONTRADICTED, _S.RECALLED, _S.FENCED}
    ),
    _S.RECALLED: frozenset({_S.RECEIPT, _S.RECEIPT_CONTRADICTED, _S.FENCED}),
    # Entered, and sent by a recovery under the next attempt.
    _S.FOUND: _WAITS,
    _S.HELD: _WAITS,
    _S.BEHIND: _WAITS,
    _S.PARKED: frozenset({_S.RESOLVED, _S.DROPPED}),
    # A person may have it sent all the same.
    _S.EXPIRED: frozenset({_S.RESOLVED, _S.FENCED}),
    # The worker that had it wakes.
    _S.DROPPED: frozenset({_S.FENCED}),
    **dict.fromkeys(ASIDE, frozenset()),
}
"""Stage to the stages that may come next under the same attempt."""

_PLACE: Final = {stage: place for place, stage in enumerate(Stage)}


def violations(events: Iterable[TraceEvent]) -> list[str]:
    """Returns a sentence for each pair of events that may not follow each other; events come in any order,
    of any number of deliveries. Equal events count once."""
    attempts: dict[tuple[str, int], list[TraceEvent]] = {}
    for event in events:
        if event.delivery_key and event.stage not in ASIDE:
            some = attempts.setdefault((event.delivery_key, event.attempt), [])
            if event not in some:
                some.append(event)
    return [
        f"{key}, attempt {attempt}: {after} may not follow {before or 'nothing'}"
        for (key, attempt), some in attempts.items()
        for before, after in pairwise([None, *_ordered(some)])
        if after is not None and after not in FOLLOWS[before]
    ]


def _ordered(events: list[TraceEvent]) -> list[Stage]:
    ordered = sorted(events, key=lambda event: (event.at, _PLACE[event.stage]))
    return [event.stage for event in ordered]
