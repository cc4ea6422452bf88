"""One grammar for durations: `30s`, `90m` or `90min`, `6h`, `2d`, and sums such as `1h30m`."""

from __future__ import annotations

import re
from typing import Final

GRAMMAR: Final = "a number and s, m or min, h, or d, or a sum of them, such as 30s, 90m, 1h30m, 2d"
DAY_MS: Final = 86_400_000
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": DAY_MS}
_PART: Final = re.compile(r"(\d{1,9})(?:\.(\d{1,3}))?(ms|s|min|m|h|d)", re.ASCII)
_BARE: Final = re.compile(r"(\d{1,9})(?:\.(\d{1,3}))?", re.ASCII)
_LONGEST_MS: Final = 100 * 366 * DAY_MS
LONGEST_S: Final = _LONGEST_MS / 1_000
_KEYS: Final = {"_ms": 1, "_s": 1_000, "_days": DAY_MS}
"""Endings of keys whose value is a number, and the milliseconds of its unit."""


def milliseconds(text: str, bare: str = "") -> int:
    """Returns the duration in milliseconds. `bare` is the unit of a number without one; empty: such a
    number is refused. Larger units come first, each at most once. Raises ValueError."""
    given = text.strip()
    if bare and _BARE.fullmatch(given):
        given += bare
    total, last, end = 0, _LONGEST_MS, 0
    while found := _PART.match(given, end):
        unit = _UNITS[found[3]]
        if unit >= last:
            break
        total += int(found[1]) * unit + int((found[2] or "0").ljust(3, "0")) * unit // 1_000
        last, end = unit, found.end()
    if not given or end < len(given) or total > _LONGEST_MS:
        raise ValueError(f"write {GRAMMAR}")
    return total


def number_hint(key: str, value: object) -> str:
    """Returns `; write 30 for 30s` where a key of a number was given a duration; else an empty text."""
    unit = next((ms for ending, ms in _KEYS.items() if key.endswith(ending)), 0)
    if not unit or not isinstance(value, str):
        return ""
    try:
        return f"; write {milliseconds(value) / unit:.15g} for {value.strip()}"
    except ValueError:
        return ""
