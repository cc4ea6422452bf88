"""Reading `--lanes`."""

from __future__ import annotations

from collections.abc import Iterable


def patterns(given: Iterable[str] | None) -> list[str] | None:
    """The patterns of a repeated, comma-separated option; None where it was not given."""
    if not given:
        return None
    return [part.strip() for text in given for part in text.split(",") if part.strip()]
