"""Options of commands that take a duration (backends/durations.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

from backends.durations import DAY_MS, milliseconds

_S: Final = 1_000.0


def seconds(least: float = 0.0, most: float = 86_400.0) -> Callable[[str | float], float]:
    """Returns a parser of an option that takes a duration, or a bare number of seconds."""

    def parse(text: str | float) -> float:
        if isinstance(text, float | int):
            return float(text)
        try:
            found = milliseconds(text, bare="s") / _S
        except ValueError as exc:
            raise typer.BadParameter(f"{text!r}: {exc}") from exc
        if found < least:
            raise typer.BadParameter(f"{text!r} is too short: give {least:g}s at least")
        if found > most:
            raise typer.BadParameter(f"{text!r} is too long: give {most:g}s at most")
        return found

    parse.__name__ = "duration"
    return parse


def days(text: str | int) -> int:
    """Parses an option that takes a duration of whole days, or a bare number of days."""
    if isinstance(text, int):
        return text
    try:
        found, rest = divmod(milliseconds(text, bare="d"), DAY_MS)
    except ValueError as exc:
        raise typer.BadParameter(f"{text!r}: {exc}") from exc
    if rest:
        raise typer.BadParameter(f"{text!r} is no whole number of days")
    return found
