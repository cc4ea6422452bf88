"""`/lost/audits`: counts of every source per lane and hour, their differences, and double sends.

A page is a day: an hour has one row a lane, so that a page is bounded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from litestar import get
from litestar.params import FromQuery

from admin.access import Person, Role, needs
from admin.pages.lost.runs import flat
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import cursor, keys_of
from admin.web.view import Page
from idempotency.lost.audits import Audit, Audits
from idempotency.search.fields import LANE_NAMES

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_DOUBLES: Final = 50
"""Double sends of a day that are listed."""


class AuditShown(NamedTuple):
    """One lane and hour with the reasons of its differences."""

    audit: Audit
    explained: list[tuple[str, str]]
    left: list[tuple[str, str]]
    """Differences without an explanation."""


@get("/lost/audits", opt=needs(Role.VIEWER), sync_to_thread=True)
def lost_audits(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    after: FromQuery[str] = "",
    flagged: FromQuery[str] = "",
) -> Page:
    """The audits of one day, the newest hour first."""
    audits = Audits(parts.databases.reads, parts.databases.reads_clock)
    until = keys_of(after, int) or audits.now_ms() // HOUR_MS * HOUR_MS + HOUR_MS
    since = until - DAY_MS
    rows = [_shown(one) for one in audits.between(since, until) if _may(person, one.lane)]
    if flagged:
        rows = [one for one in rows if one.audit.unexplained]
    lanes = None if person.everywhere(Role.VIEWER) else person.among(LANE_NAMES)
    doubles = audits.doubles(since, _DOUBLES + 1, until=until, lanes=lanes)
    return view.page(
        "lost/audits.html",
        rows=rows,
        doubles=doubles[:_DOUBLES],
        most_doubles=_DOUBLES if len(doubles) > _DOUBLES else 0,
        since=since,
        until=until,
        earlier=cursor(since),
        flagged=flagged,
    )


def _may(person: Person, lane: str) -> bool:
    return person.may(Role.VIEWER, lane)


def _shown(audit: Audit) -> AuditShown:
    explained = list(flat(audit.counts.get("explained") or {}))
    return AuditShown(audit, explained, list(flat(audit.counts.get("open") or {})))


HANDLERS = [lost_audits]
