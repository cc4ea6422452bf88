"""Verdict on pauses: nothing of a paused lane comes to the provider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.books import Books, Hit
from tests.chaos.kinds import OUTAGES, STOPS, Kind

_WAKING_MS = 3_000
"""A process that slept, or had no database, may learn of a pause so much later."""


def sent_in_pause(books: Books) -> list[str]:
    """Calls for deliveries of a lane while everybody had to obey its pause."""
    unaware = [
        (hit.at_ms, hit.until_ms + _WAKING_MS)
        for hit in books.hits
        if hit.fault.kind in STOPS | OUTAGES
    ]
    return [
        problem
        for hit in books.hits
        if hit.fault.kind is Kind.PAUSED
        for problem in _of_one(hit, books, unaware)
    ]


def _of_one(hit: Hit, books: Books, unaware: Iterable[tuple[int, int]]) -> Iterator[str]:
    begin, end = hit.quiet_ms
    for record in books.records:
        row = books.rows.get(record.key)
        if row is None or row.lane != hit.lane or not begin <= record.at_ms < end:
            continue
        if not any(start <= record.at_ms <= stop for start, stop in unaware):
            by = f"fault {hit.fault.number}"
            yield f"{record.key}: came to the provider while its lane was paused by {by}"
