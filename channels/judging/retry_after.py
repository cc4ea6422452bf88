"""Retry-After (RFC 9110 §10.2.3): the pause that the provider asks for."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Final

import httpx

MAX_MS: Final = 48 * 3_600_000
"""A longer wish is cut to this: no limit of a day lasts longer, and the TTL decides anyway."""
_SECONDS = re.compile(r"[0-9]{1,18}", re.ASCII)


def retry_after_ms(headers: httpx.Headers, now_s: float) -> int | None:
    """Returns the pause in milliseconds, 0 to MAX_MS; None where none can be read.

    A date counts from the answer's own Date if it has one, so that our clock does not matter; else from
    `now_s`, in epoch seconds. A past date is 0."""
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return min(int(text) * 1_000, MAX_MS)
    until = _epoch_s(text)
    if until is None:
        return None
    answered = _epoch_s(headers.get("date", ""))
    wait_s = until - (now_s if answered is None else answered)
    return max(0, min(int(wait_s * 1_000), MAX_MS))


def _epoch_s(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
