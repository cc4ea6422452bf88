"""The order of a delivery's events, and the rule of its state.

A timeline is ordered by time, then by the order of stages, then by id. The state is that of the last event
that gives one: by attempt, then by phase (a beginning, an end, a receipt), then by time, then by the order
of stages, then by id. Within one phase the time decides: an operator may revive what expired, and it may
expire again. A late receipt of an earlier attempt, a fence, a duplicate and a conflict change no state.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tracing.events import Stage

BEGINNINGS: Final = (Stage.HELD, Stage.BEHIND, Stage.FOUND, Stage.CLAIMED, Stage.TAKEN)
ENDS: Final = (
    Stage.OWNER_DEAD,
    Stage.SETTLED,
    Stage.HANDED_OVER,
    Stage.EXPIRED,
    Stage.DROPPED,
    Stage.PARKED,
    Stage.RESOLVED,
    Stage.RECALLED,
)
"""In the order of equal times."""
END: Final = 1
"""The phase of ends."""
RECEIPTS: Final = (Stage.RECEIPT,)
_ATTEMPT_ENDS: Final = (
    Stage.ATTEMPTED,
    Stage.FENCED,
    *(stage for stage in ENDS if stage is not Stage.RECALLED),
)
_ORDER: Final = [
    Stage.ACCEPTED,
    *BEGINNINGS,
    Stage.ATTEMPTED,
    *ENDS,
    *RECEIPTS,
    *(
        stage
        for stage in Stage
        if stage not in (Stage.ACCEPTED, Stage.ATTEMPTED, *BEGINNINGS, *ENDS, *RECEIPTS)
    ),
]


def rank(stage: Column) -> Column:
    """Returns the stage's place in the order of stages; 0 for one that this version does not know."""
    return F.array_position(F.array(*[F.lit(one.value) for one in _ORDER]), stage).cast("int")


def is_in(stage: Column, stages: tuple[Stage, ...]) -> Column:
    """Returns whether the stage is one of these."""
    return stage.isin([one.value for one in stages])


def gives_state(event: Column) -> Column:
    """Returns whether the event tells the delivery's state."""
    known = is_in(event["stage"], (*BEGINNINGS, *ENDS, *RECEIPTS))
    return known & event["state"].isNotNull() & (event["state"] != "")


def ends_attempt(event: Column) -> Column:
    """Returns whether the event tells how its attempt ended."""
    return is_in(event["stage"], _ATTEMPT_ENDS)


def follows_end(event: Column) -> Column:
    """Returns whether the event proves that its attempt had ended before it."""
    return is_in(event["stage"], (Stage.RECEIPT, Stage.RECEIPT_CONTRADICTED, Stage.RECALLED))


def phase(stage: Column) -> Column:
    """Returns 0 for a beginning, 1 for an end, 2 for a receipt."""
    return (
        F.when(is_in(stage, RECEIPTS), F.lit(2))
        .when(is_in(stage, BEGINNINGS), F.lit(0))
        .otherwise(END)
    )


def attempt(event: Column) -> Column:
    """Returns the event's attempt; 0 before the first one."""
    return F.coalesce(event["attempt"], F.lit(0))


def verdict_order(event: Column) -> list[Column]:
    """Returns what decides between two events that give a state, in order."""
    stage = event["stage"]
    return [
        attempt(event).alias("attempt"),
        phase(stage).alias("phase"),
        event["at"].alias("at"),
        rank(stage).alias("rank"),
        event["id"].alias("id"),
    ]


def in_order(events: Column) -> Column:
    """Returns the array of events with each event once, ordered."""
    placed = F.transform(events, lambda e: F.struct(*_place(e), e.alias("e")))
    several = F.array_distinct(F.sort_array(placed)).getField("e")
    # Most deliveries have two events: to compare these is compiled code, to sort an array is not.
    first, second = (F.get(events, F.lit(index)) for index in range(2))
    before, after = F.struct(*_place(first)), F.struct(*_place(second))
    two = F.size(events) == 2
    return (
        F.when(F.size(events) <= 1, events)
        .when(two & (before < after), events)
        .when(two & (after < before), F.array(second, first))
        .otherwise(several)
    )


def _place(event: Column) -> list[Column]:
    return [event["at"], rank(event["stage"]).alias("rank"), event["id"]]
