"""Tables that a new policy text changes or drops, and their lanes. Pure functions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from message.vocabulary import LANES, Lane
from policy.diff import Change
from policy.schema import DEFAULTS_BY_KIND


def dropped_tables(before: str, after: str) -> list[str]:
    """Returns the tables that set something in `before` and are not in `after`. Both texts are valid."""
    kept = set(_tables(after))
    return [name for name in _tables(before) if name not in kept]


def resets(found: Sequence[Change], dropped: Sequence[str]) -> list[Change]:
    """Returns the changes of lanes that one of the dropped tables applied to."""
    return [one for one in found if any(_applies(table, one.lane) for table in dropped)]


def changed_lanes(before: str, after: str) -> set[Lane]:
    """Returns the lanes that an added, changed or dropped table applies to, whatever it changes for them.
    Both texts are valid."""
    old, new = _tables(before), _tables(after)
    changed = [name for name in old | new if old.get(name) != new.get(name)]
    return {lane for lane in LANES for table in changed if _applies(table, lane)}


def _applies(table: str, lane: Lane) -> bool:
    """Returns whether the table of this header applied to the lane."""
    if table in ("[defaults]", f"[defaults.{lane.kind}]"):
        return True
    name = table.removeprefix('[lanes."').removesuffix('"]')
    return name != table and lane.fits(name)


def _tables(text: str) -> dict[str, Any]:
    """Returns the tables that set something, by their headers."""
    content = tomllib.loads(text)
    defaults: Mapping[str, Any] = content.get("defaults", {})
    own = {key: value for key, value in defaults.items() if key not in DEFAULTS_BY_KIND}
    found: dict[str, Any] = {"[defaults]": own} if own else {}
    found |= {
        f"[defaults.{kind}]": defaults[kind] for kind in DEFAULTS_BY_KIND if defaults.get(kind)
    }
    lanes: Mapping[str, Any] = content.get("lanes", {})
    return found | {f'[lanes."{name}"]': table for name, table in lanes.items() if table}
