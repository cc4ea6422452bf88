"""What a worker's log shows: when its lease lapsed, and lines that no outage explains. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

EXPECTED = frozenset(
    {
        *("ledger_away", "lease_lapsed", "dead_letters_held", "alert"),
        *("outcomes_held", "outcomes_refused", "outcomes_left"),
    }
)
"""Errors that an outage of a server brings with it, and what a person has to know."""
_TRACEBACK = "Traceback (most recent call last)"
_ALARMING = (_TRACEBACK, "ERROR ", "CRITICAL ")
_SHOWN = 300


def lapses_ms(text: str) -> list[int]:
    """When the worker found that its lease had lapsed, epoch milliseconds."""
    return [_ms(e["time"]) for e in _events(text) if e.get("event") == "lease_lapsed"]


def complaints(text: str) -> list[str]:
    """Errors other than the expected ones, and whatever a library printed in despair."""
    found = []
    for line in text.splitlines():
        event = _event(line)
        if _is_alarming(event) if event is not None else line.startswith(_ALARMING):
            found.append(line[:_SHOWN])
    return found


def point_of(text: str) -> str:
    """How far a process had come, by its log."""
    names = {event.get("event") for event in _events(text)}
    if "recovery_started" in names:
        return "at work"
    if "worker_started" not in names:
        return "starting"
    return "at work" if "partitions_assigned" in names else "joining the group"


def _is_alarming(event: dict[str, Any]) -> bool:
    if event.get("level") == "critical" or "exception" in event:
        return True
    return event.get("level") == "error" and event.get("event") not in EXPECTED


def _events(text: str) -> Iterator[dict[str, Any]]:
    lines: Iterable[str] = text.splitlines()
    return (event for line in lines if (event := _event(line)) is not None)


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)
