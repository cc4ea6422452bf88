"""Trace events as rows: the events of one message in one flush are one row, as a JSON array.

A message's events mostly come within one flush: the database then takes one row and one index entry for
them instead of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tracing.events import Stage, TraceEvent

DAY_MS: Final = 86_400_000
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[TraceEvent])
_lenient_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_STAGES: Final = frozenset(stage.value for stage in Stage)
_BACK, _TWICE = "\\", "\\\\"
_SPECIAL = re.compile(r"[\\\x00-\x1f]")


class Row(NamedTuple):
    """One row of `trace_events`, its columns in order."""

    day: int
    at: int
    message_id: str
    events: str


def rows_of(events: Sequence[TraceEvent]) -> list[Row]:
    """Returns one row per message, in the order in which they first appear.

    A poison record has no id: its row has its place in Kafka instead.
    """
    groups: dict[str, list[TraceEvent]] = {}
    for event in events:
        groups.setdefault(event.message_id or event.origin or "", []).append(event)
    return [_row(name, group) for name, group in groups.items()]


def events_in(texts: Iterable[str]) -> list[TraceEvent]:
    """Returns the events of these rows' `events` columns. A later version's process may have written stages
    that this program does not know: it leaves these events out."""
    return [event for text in texts for event in _events_of(text)]


def _events_of(text: str) -> list[TraceEvent]:
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        known = [one for one in _lenient_decoder.decode(text) if one.get("stage") in _STAGES]
        return msgspec.convert(known, list[TraceEvent])


def copy_text(rows: Iterable[Row]) -> str:
    """Returns the rows as PostgreSQL's COPY reads them. JSON escapes its control characters, so that COPY
    would misread only its backslashes."""
    return "".join(
        f"{row.day}\t{row.at}\t{_escaped(row.message_id)}\t{row.events.replace(_BACK, _TWICE)}\n"
        for row in rows
    )


def _row(name: str, events: list[TraceEvent]) -> Row:
    at = events[0].at
    return Row(at // DAY_MS, at, name.replace("\x00", ""), _encoder.encode(events).decode())


def _escaped(text: str) -> str:
    if text.isprintable() and _BACK not in text:
        return text
    return _SPECIAL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
