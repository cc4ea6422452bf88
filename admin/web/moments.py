"""Moments in a page: UTC for people, ISO 8601 for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

_NONE: Final = Markup("–")
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""First and last moment of the calendar, from the year 1 to the year 9999."""
_TAG: Final = '<time datetime="{0}" title="{0}" data-local>{1}</time>'


def utc(at_ms: int | None) -> str:
    """Returns `2026-09-23 14:03:11`; a dash for no time."""
    return _utc(_written(at_ms)) if at_ms else _NONE


def iso(at_ms: int | None) -> str:
    """Returns ISO 8601 with milliseconds, in UTC; empty for no time."""
    return _iso(_written(at_ms)) if at_ms else ""


def moment(at_ms: int | None) -> Markup:
    """Returns the element of a moment: UTC in the page, ISO in the title; console.js adds local time."""
    if not at_ms:
        return _NONE
    written = _written(at_ms)
    return Markup(_TAG.format(_iso(written), _utc(written)))  # noqa: S704 - digits and marks alone


def _written(at_ms: int) -> str:
    """Returns the moment in ISO 8601. One outside of the calendar is shown as its first or last moment: a
    stranger's time must not cost the page."""
    kept = min(max(at_ms, _FIRST_MS), _LAST_MS)
    return datetime.fromtimestamp(kept / 1_000, UTC).isoformat(timespec="milliseconds")


def _utc(written: str) -> str:
    return f"{written[:10]} {written[11:19]}"


def _iso(written: str) -> str:
    return f"{written[:23]}Z"
