"""One grammar for durations: `30s`, `90m` or `90min`, `6h`, `2d`, and sums such as `1h30m`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import typer

GRAMMAR: Final = "a number and s, m or min, h, or d, or a sum of them, such as 30s, 90m, 1h30m, 2d"
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d{1,9})(?:\.(\d{1,3}))?(ms|s|min|m|h|d)", re.ASCII)
_BARE: Final = re.compile(r"(\d{1,9})(?:\.(\d{1,3}))?", re.ASCII)
_LONGEST_MS: Final = 100 * 366 * 86_400_000
_S: Final = 1_000.0


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


def seconds(least: float = 0.0, most: float = 86_400.0) -> Callable[[str | float], float]:
    """Returns a parser of an option that takes a duration, or a bare number of seconds."""

    def parse(text: str | float) -> float:
        if isinstance(text, float | int):
            return float(text)
        try:
            found = milliseconds(text, bare="s") / _S
        except ValueError as exc:
            raise typer.BadParameter(f"{text!r}: {exc}") from exc
        if not least <= found <= most:
            raise typer.BadParameter(f"{text!r} is not from {least:g}s to {most:g}s")
        return found

    parse.__name__ = "duration"
    return parse


def days(text: str | int) -> int:
    """Parses an option that takes a duration of whole days, or a bare number of days."""
    if isinstance(text, int):
        return text
    try:
        found, rest = divmod(milliseconds(text, bare="d"), _UNITS["d"])
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r}: {exc}") from exc
    if rest:
        raise typer.BadParameter(f"{text!r} is no whole number of days")
    return found
