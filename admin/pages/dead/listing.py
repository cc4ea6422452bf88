"""`/dead`: the list, from the index alone: it works while Kafka is away."""

from __future__ import annotations

from typing import Final

from litestar import get
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.pages.dead.lanes import LANE_NAMES, SINCE, AskedLetters, pages_of
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page
from idempotency.dead_letters.rows import LetterKey, LetterState

_PER_PAGE: Final = 50
_LATE_MS: Final = 60_000
"""A look at the topic that is older is a warning: recoveries look every ten seconds."""


@get("/dead", opt=needs(Role.VIEWER, "lane"), sync_to_thread=True)
def dead(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    show: FromQuery[str] = LetterState.OPEN,
    reason: FromQuery[str] = "",
    lane: FromQuery[str] = "",
    since: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Page:
    """The letters, the newest first."""
    asked, browser = AskedLetters(show, reason, lane, since), pages_of(parts)
    now_ms, lag = browser.now_ms(), browser.lag()
    wanted = asked.filter(person, Role.VIEWER, now_ms)
    found = browser.page(wanted, _PER_PAGE + 1, keys_of(after, LetterKey))
    return view.page(
        "dead/list.html",
        asked=asked,
        rows=page_of(found, _PER_PAGE, lambda row: LetterKey(row.at, row.origin)),
        reasons=browser.reasons(),
        lanes=person.among(LANE_NAMES),
        ages=SINCE,
        states=list(LetterState),
        lag=lag,
        late=bool(lag.letters) or now_ms - lag.seen_at > _LATE_MS,
        acts=person.may(Role.OPERATOR),
    )


HANDLERS = [dead]
