"""Verdict on pauses: nothing of a paused lane comes to the provider, and what waited comes soon after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.books import Books, Hit
from tests.chaos.kinds import OUTAGES, STOPS, Kind

RESUMED_MS = 5_000
_UNSETTLED_MS = 15_000
"""A fault that ended so shortly before may still delay calls: a rebalance, a breaker, a lapsed lease."""
_HARMLESS = frozenset({Kind.POISON, Kind.FLUSH, Kind.RESEND, Kind.MANUAL, Kind.SLOW, Kind.STALE})
"""They delay no delivery but those that they bring along."""
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


def resumed_late(books: Books) -> list[str]:
    """Pauses after which nothing of what had waited came to the provider within five seconds. A pause says
    nothing whose resume met another fault that delays calls."""
    return [
        f"fault {hit.fault.number}: no call for {hit.lane} within {RESUMED_MS / 1_000:g} s of its resume"
        for hit in books.hits
        if proves_resume(hit, books.hits) and not _came(hit, books)
    ]


def proves_resume(hit: Hit, hits: Iterable[Hit]) -> bool:
    """Whether notifications waited for the resume, and nothing else delayed them."""
    if hit.fault.kind is not Kind.PAUSED or not hit.resumed_ms or not hit.sent:
        return False
    begin, end = hit.resumed_ms - _UNSETTLED_MS, hit.resumed_ms + RESUMED_MS
    others = [one for one in hits if one is not hit and _delays(one, hit)]
    return not any(one.at_ms <= end and (one.until_ms or end) >= begin for one in others)


def _delays(other: Hit, hit: Hit) -> bool:
    """Whether another fault may delay calls of the lane. A pause does so of its own lane alone."""
    if other.fault.kind is Kind.PAUSED:
        return other.lane == hit.lane
    return other.fault.kind not in _HARMLESS


def back_ms(hit: Hit, books: Books) -> int | None:
    """Milliseconds from the resume to the first call for what had waited; None if none came."""
    keys = {key for sent in hit.sent for key in sent.keys}
    times = [one.at_ms for one in books.records if one.key in keys and one.at_ms >= hit.quiet_ms[1]]
    return max(0, min(times) - hit.resumed_ms) if times else None


def resumes(books: Books) -> list[int | None]:
    """Returns `back_ms` of each pause whose resume no other fault delayed."""
    return [back_ms(hit, books) for hit in books.hits if proves_resume(hit, books.hits)]


def _came(hit: Hit, books: Books) -> bool:
    back = back_ms(hit, books)
    return back is not None and back <= RESUMED_MS


def _of_one(hit: Hit, books: Books, unaware: Iterable[tuple[int, int]]) -> Iterator[str]:
    begin, end = hit.quiet_ms
    for record in books.records:
        row = books.rows.get(record.key)
        if row is None or row.lane != hit.lane or not begin <= record.at_ms < end:
            continue
        if not any(start <= record.at_ms <= stop for start, stop in unaware):
            by = f"fault {hit.fault.number}"
            yield f"{record.key}: came to the provider while its lane was paused by {by}"
