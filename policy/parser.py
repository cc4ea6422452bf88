"""Parses a policy file: merges its tables per lane, and collects every problem with line and key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from backends.toml_text import did_you_mean
from message.vocabulary import CHANNELS, KINDS, LANES, Lane, lane_named
from policy.gates import ContentDedup, FrequencyCap, QuietAction, QuietHours, Scope
from policy.problems import Problem
from policy.schema import (
    DEFAULTS_BY_KIND,
    BreakerPolicy,
    Guarantee,
    InDoubt,
    LanePolicy,
    Ordering,
    RetryPolicy,
    SmtpPolicy,
    TraceLevel,
    WhenLost,
)
from policy.toml_document import Place, TomlDocument
from policy.validation import (
    GATES,
    cautions,
    contradictions,
    misfit,
    wrong_time,
    wrong_weights,
)

_FIELDS: Final = frozenset(LanePolicy.__struct_fields__)
INNER_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "breaker": BreakerPolicy,
    "retry": RetryPolicy,
    "smtp": SmtpPolicy,
    "quiet_hours": QuietHours,
    "frequency": FrequencyCap,
    "dedup": ContentDedup,
}
_CHOICES: Final[Mapping[Place, type[StrEnum]]] = {
    ("guarantee",): Guarantee,
    ("ordering",): Ordering,
    ("unknown",): InDoubt,
    ("lost",): WhenLost,
    ("trace",): TraceLevel,
    ("quiet_hours", "action"): QuietAction,
    ("frequency", "scope"): Scope,
}
_TOP: Final = ("defaults", "lanes")
_LANE_NAMES: Final = tuple(lane.name for lane in LANES)

Layer = dict[Place, tuple[Any, Place]]
"""Fields of one table, `("threads",)` or `("breaker", "share")`: value and place."""


class PolicyParser(TomlDocument):
    """Parses one file; collects problems instead of stopping at the first."""

    def __init__(self, file: str, content: bytes, accounts: Collection[str] | None) -> None:
        super().__init__(file, content)
        self.cautions: list[Problem] = []
        """Valid values that a person should check."""
        self._accounts = accounts
        self._clashes: set[tuple[Place, Place]] = set()

    def lanes(self) -> dict[str, LanePolicy]:
        """Returns every lane's policy; fields with problems keep their defaults."""
        return {lane.name: self._merged(lane, layer) for lane, layer in self._layers().items()}

    def origins(self) -> dict[str, dict[str, Place]]:
        """Returns the place that sets each field, by lane and dotted field; defaults are left out."""
        return {
            lane.name: {".".join(key): place for key, (_, place) in layer.items()}
            for lane, layer in self._layers().items()
        }

    def places(self, field: str) -> dict[str, Place]:
        """Returns the place that sets a dotted field, by lane: in its own table, a pattern's, its kind's or
        the one for all; in its own if none does."""
        path = tuple(field.split("."))
        return {
            name: found.get(field, ("lanes", name, *path)) for name, found in self.origins().items()
        }

    def _layers(self) -> dict[Lane, Layer]:
        """Returns the fields that the file sets for each lane."""
        self._check_top()
        shared = self.table(self.data, ("defaults",))
        kinds = {kind: shared.pop(kind) for kind in KINDS if kind in shared}
        defaults = self._layer(("defaults",), shared)
        by_kind = {kind: self._layer(("defaults", kind), kinds.get(kind, {})) for kind in KINDS}
        named = {name: self._layer(("lanes", name), table) for name, table in self._lane_tables()}
        return {
            lane: {**defaults, **by_kind[lane.kind], **self._of_lane(lane, named)} for lane in LANES
        }

    def _of_lane(self, lane: Lane, named: Mapping[str, Layer]) -> Layer:
        """Returns the fields of the tables that name the lane: patterns first, then its own. Reports a
        field that two patterns set and its own table does not: either could count."""
        own = named.get(lane.name, {})
        found: Layer = {}
        for name, layer in named.items():
            if name == lane.name or not lane.fits(name):
                continue
            for key, (value, place) in layer.items():
                if key in found and key not in own:
                    self._clash(lane, place, found[key][1])
                found[key] = (value, place)
        return {**found, **own}

    def _clash(self, lane: Lane, place: Place, other: Place) -> None:
        if (place, other) not in self._clashes:
            self._clashes.add((place, other))
            self.report(
                place,
                f'is set for {lane.name} by [lanes."{other[1]}"], too; set it in one of the two, or in'
                f' [lanes."{lane.name}"]',
            )

    def _check_top(self) -> None:
        for key in self.data:
            if key in _FIELDS:
                self.report((key,), "is outside of any table; put it under [defaults]")
            elif key not in _TOP:
                self.report((key,), f"unknown table{did_you_mean(key, _TOP)}")

    def _lane_tables(self) -> Iterator[tuple[str, Any]]:
        for name, table in self.table(self.data, ("lanes",)).items():
            if lane_named(name) is not None or _is_pattern(name):
                yield name, table
            elif name in CHANNELS and isinstance(table, dict):
                kind = next(iter(table), "notice")
                self.report(("lanes", name), f'quote the name: [lanes."{name}.{kind}"]')
            else:
                known = f"; write CHANNEL.KIND with * and ?, where channel is one of {', '.join(CHANNELS)}"
                self.report(
                    ("lanes", name), f"no such lane{did_you_mean(name, _LANE_NAMES) or known}"
                )

    def _layer(self, path: Place, table: Any) -> Layer:
        """Returns the fields that one table sets, with places. Reports wrong ones and leaves them out."""
        if not isinstance(table, dict):
            self.report(path, "must be a table")
            return {}
        layer: Layer = {}
        for key, value in table.items():
            place = (*path, key)
            if key in INNER_TABLES:
                layer |= self._inner(place, value)
            elif key not in _FIELDS:
                self.report(place, f"unknown key{did_you_mean(key, _FIELDS)}")
            elif not self._reported(place, self._wrong(key, value)):
                layer[key,] = (value, place)
        return layer

    def _inner(self, path: Place, table: Any) -> Layer:
        """Returns the fields of a lane's inner table; other layers may set others of them."""
        name = path[-1]
        struct = INNER_TABLES[name]
        if not isinstance(table, dict):
            self.report(path, "must be a table")
            return {}
        layer: Layer = {}
        for key, value in table.items():
            place = (*path, key)
            if key not in struct.__struct_fields__:
                self.report(place, f"unknown key{did_you_mean(key, struct.__struct_fields__)}")
            elif not self._reported(place, self._wrong_inner(name, key, value)):
                layer[name, key] = (value, place)
        return layer

    def _reported(self, place: Place, problems: Iterable[tuple[Place, str]]) -> bool:
        """Reports the problems of the value at `place`, or below it. Returns whether there were any."""
        found = list(problems)
        for below, text in found:
            self.report((*place, *below), text)
        return bool(found)

    def _wrong(self, key: str, value: Any) -> Iterator[tuple[Place, str]]:
        """Yields the problems of one value by itself: (place below the key, text)."""
        if (key,) in _CHOICES:
            yield from _wrong_choice((key,), value)
        elif key == "accounts":
            yield from self._wrong_accounts(value)
        else:
            yield from misfit(LanePolicy, key, value)

    def _wrong_inner(self, table: str, key: str, value: Any) -> Iterator[tuple[Place, str]]:
        """Yields the same for a value in an inner table."""
        if (table, key) in _CHOICES:
            yield from _wrong_choice((table, key), value)
        elif problems := list(misfit(INNER_TABLES[table], key, value)):
            yield from problems
        elif table == "quiet_hours":
            yield from wrong_time(key, value)

    def _wrong_accounts(self, accounts: Any) -> Iterator[tuple[Place, str]]:
        if isinstance(accounts, dict):
            yield from wrong_weights(accounts)
        elif not isinstance(accounts, list):
            yield (), "must be a list of names, or a table of names and weights"
            return
        elif problems := list(misfit(LanePolicy, "accounts", accounts)):
            yield from problems
            return
        elif len(set(accounts)) < len(accounts):
            yield (), "names an account twice; name each once"
        for name in accounts:
            if self._accounts is not None and name not in self._accounts:
                hint = did_you_mean(name, self._accounts) or "; add [accounts.NAME] there"
                below = (name,) if isinstance(accounts, dict) else ()
                yield below, f"account {name!r} is not in hongyan.toml{hint}"

    def _merged(self, lane: Lane, layer: Layer) -> LanePolicy:
        values = msgspec.to_builtins(DEFAULTS_BY_KIND[lane.kind])
        for (*tables, key), (value, _) in layer.items():
            table = values[tables[0]] if tables else values
            table[key] = value
        policy = msgspec.convert(values, LanePolicy)
        for key, text in contradictions(policy):
            self.report(_place(lane, layer, key), text)
        for key, text in cautions(lane, policy):
            self.cautions.append(self.problem(_place(lane, layer, key), text))
        self._check_exempt(lane, layer, values)
        return policy

    def _check_exempt(self, lane: Lane, layer: Layer, values: Mapping[str, Any]) -> None:
        """Reports a gate that the kind's or the lane's table sets in vain, since the kind is exempt."""
        for (*tables, _), (_, place) in layer.items():
            gate = tables[0] if tables else ""
            of_its_own = place[:2] in (("lanes", lane.name), ("defaults", lane.kind))
            if gate not in GATES or not of_its_own:
                continue
            if values[gate]["exempt"] and (gate, "exempt") not in layer:
                text = f"changes nothing, since {lane.kind} is exempt; add {gate}.exempt = false"
                self.report(place, text)


def _place(lane: Lane, layer: Layer, key: str) -> Place:
    """Returns the place that sets the lane's key; in its own table if none does."""
    path = tuple(key.split("."))
    return layer[path][1] if path in layer else ("lanes", lane.name, *path)


def _is_pattern(name: str) -> bool:
    """Whether the name has wildcards and fits a lane."""
    return bool({"*", "?"} & set(name)) and any(lane.fits(name) for lane in LANES)


def _wrong_choice(place: Place, value: Any) -> Iterator[tuple[Place, str]]:
    possible = [str(choice) for choice in _CHOICES[place]]
    if value not in possible:
        hint = did_you_mean(value, possible)
        yield (), f"{value!r} is none of {', '.join(possible)}{hint}"
