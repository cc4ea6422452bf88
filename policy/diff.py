"""The changes between two policies, and their effects on waiting deliveries. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from message.states import State
from message.vocabulary import LANES, Lane
from policy.schema import LanePolicy, Policy

FIXED: Final = ("guarantee", "ordering")
"""Fields that a lane at work cannot change: its counts, queues and claims depend on them."""


class Change(NamedTuple):
    """One field of one lane."""

    lane: Lane
    key: str
    """Such as `retry.attempts` for a field of an inner table."""
    before: Any
    after: Any


class Waiting(NamedTuple):
    """Number of equal open deliveries of one lane."""

    lane: str
    state: str
    account: str
    spent: int
    """Attempts spent: calls, less those refused for pace alone."""
    rows: int


class Effect(NamedTuple):
    """The effect on waiting deliveries of a lane."""

    lane: str
    rows: int
    text: str


def changes(before: Policy, after: Policy) -> list[Change]:
    """Returns every field that differs, lane by lane."""
    return [change for lane in LANES for change in _of_lane(lane, before.of(lane), after.of(lane))]


def grouped(found: Sequence[Change]) -> list[tuple[str, Any, Any, list[Lane]]]:
    """Returns equal changes once, with all their lanes: (key, before, after, lanes)."""
    groups: dict[str, tuple[str, Any, Any, list[Lane]]] = {}
    for lane, key, before, after in found:
        group = groups.setdefault(repr((key, before, after)), (key, before, after, []))
        group[3].append(lane)
    return list(groups.values())


def refusals(
    found: Sequence[Change],
    waiting: Sequence[Waiting] | None,
    serving: Sequence[frozenset[str]],
) -> list[str]:
    """Returns the reasons against applying these changes now, a sentence each.

    `waiting` is None where open deliveries could not be counted. `serving` has the lanes of each live
    process.
    """
    open_rows: dict[str, int] = defaultdict(int)
    for one in waiting or ():
        open_rows[one.lane] += one.rows
    refused = []
    for lane, key, before, after in found:
        alive, rows = sum(lane.name in lanes for lanes in serving), open_rows[lane.name]
        if key in FIXED and waiting is None:
            refused.append(
                f"lane {lane.name}: {key} cannot go from {before} to {after} while its open deliveries"
                " cannot be counted; try again when the database is less busy"
            )
        elif key in FIXED and (alive or rows):
            refused.append(
                f"lane {lane.name}: {key} cannot go from {before} to {after} while it is at work:"
                f" {_counted(alive, 'process')} of it alive, {_counted(rows, 'delivery')} open;"
                " stop its workers, let recovery end what is open, stop recovery, apply, start again"
            )
    return refused


def effects(
    before: Policy, after: Policy, found: Sequence[Change], waiting: Sequence[Waiting]
) -> list[Effect]:
    """Returns the effects of the changes on waiting deliveries, most deliveries first."""
    keys: dict[str, set[str]] = defaultdict(set)
    lanes = {change.lane.name: change.lane for change in found}
    for change in found:
        keys[change.lane.name].add(change.key)
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for one in waiting:
        if one.lane in lanes:
            lane = lanes[one.lane]
            for text in _said(one, keys[one.lane], before.of(lane), after.of(lane)):
                counted[one.lane, text] += one.rows
    listed = [Effect(lane, rows, text) for (lane, text), rows in counted.items()]
    return sorted(listed, key=lambda effect: (-effect.rows, effect.lane, effect.text))


def _said(one: Waiting, keys: set[str], before: LanePolicy, after: LanePolicy) -> Iterator[str]:
    """Yields the effects of the changed fields on one group."""
    if {"ttl_ms", "max_ttl_ms"} & keys:
        yield "keep the end of life they were entered with"
    gone = _is_gone(one.account, before, after)
    if gone and one.state == State.UNKNOWN:
        yield f"in doubt at account {one.account}, which cannot be asked any more"
    elif gone and one.state == State.RETRY:
        yield f"last tried through {one.account}, go through another account"
    if one.state == State.RETRY and before.retry.attempts > one.spent >= after.retry.attempts:
        yield f"are parked when they are due: {after.retry.attempts} attempts are spent"
    if one.state == State.UNKNOWN and before.resends_unproven is not after.resends_unproven:
        becomes = "sent again" if after.resends_unproven else "parked"
        yield f"in doubt, are {becomes} where nothing can be proved"
    if one.state == State.RETRY and after.quiet_hours.holds and _touches("quiet_hours", keys):
        yield "wait for the end of quiet hours where they fall due in them"


def _is_gone(account: str, before: LanePolicy, after: LanePolicy) -> bool:
    """Returns whether the lane loses the account; without names a policy has every account."""
    names, names_before = after.account_names, before.account_names
    if not account or not names or account in names:
        return False
    return not names_before or account in names_before


def _touches(table: str, keys: set[str]) -> bool:
    return any(key.startswith(f"{table}.") for key in keys)


def _of_lane(lane: Lane, before: LanePolicy, after: LanePolicy) -> Iterator[Change]:
    if before == after:
        return
    old, new = _flat(before), _flat(after)
    for key in old | new:
        if old.get(key) != new.get(key):
            yield Change(lane, key, old.get(key), new.get(key))


def _flat(policy: LanePolicy) -> dict[str, Any]:
    """Returns fields by dotted name; the weights of accounts are one value."""
    flat: dict[str, Any] = {}
    for key, value in msgspec.to_builtins(policy).items():
        if isinstance(value, Mapping) and key != "accounts":
            flat |= {f"{key}.{inner}": below for inner, below in value.items()}
        else:
            flat[key] = value
    return flat


def _counted(count: int, noun: str) -> str:
    plural = {"process": "processes", "delivery": "deliveries"}[noun]
    return f"{count} {noun if count == 1 else plural}"
