"""Reads `--lanes`."""

from __future__ import annotations

from collections.abc import Iterable


def patterns(given: Iterable[str] | None) -> list[str] | None:
    """Returns the patterns of a repeated, comma-separated option; None if it was not given."""
    if not given:
        return None
    return [part.strip() for text in given for part in text.split(",") if part.strip()]
