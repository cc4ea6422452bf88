"""Names of the headers that mark a dead letter (docs/dead-letters.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OURS: Final = "hongyan-dead-"
"""Prefix of all of them."""
REASON: Final = "hongyan-dead-reason"
DETAIL: Final = "hongyan-dead-detail"
ORIGIN: Final = "hongyan-dead-origin"
TRUNCATED: Final = "hongyan-dead-truncated"
"""Original size in bytes, where the topic refused the whole value; then it is the last header."""

Headers = list[tuple[str, bytes | None]]


def header_text(headers: Sequence[tuple[str, bytes | None]], name: str) -> str:
    """Returns the first header of that name; empty without one."""
    return next((v.decode("utf-8", "replace") for n, v in headers if n == name and v), "")


def last_header_text(headers: Sequence[tuple[str, bytes | None]], name: str) -> str:
    """Returns the last header of that name. An earlier one may be the producer's own."""
    return header_text(headers[::-1], name)
