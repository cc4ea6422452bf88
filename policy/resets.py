"""What a policy text no longer says: tables that are gone, and what that sets back; pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from policy.diff import Change
from policy.schema import DEFAULTS_BY_KIND


def dropped_tables(before: str, after: str) -> list[str]:
    """Tables that set something in `before` and are not in `after`; both texts are valid policies."""
    kept = set(_tables(after))
    return [name for name in _tables(before) if name not in kept]


def resets(found: Sequence[Change], dropped: Sequence[str]) -> list[Change]:
    """The changes of lanes for which one of the dropped tables stood."""
    return [
        one
        for one in found
        if {"[defaults]", f"[defaults.{one.lane.kind}]", f'[lanes."{one.lane.name}"]'}
        & set(dropped)
    ]


def _tables(text: str) -> list[str]:
    """As they are written, without those that set nothing."""
    content = tomllib.loads(text)
    defaults: Mapping[str, Any] = content.get("defaults", {})
    own = {key: value for key, value in defaults.items() if key not in DEFAULTS_BY_KIND}
    names = ["[defaults]"] if own else []
    names += [f"[defaults.{kind}]" for kind in DEFAULTS_BY_KIND if defaults.get(kind)]
    lanes: Mapping[str, Any] = content.get("lanes", {})
    return names + [f'[lanes."{name}"]' for name, table in lanes.items() if table]
