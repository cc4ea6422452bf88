"""`/campaigns/CAMPAIGN`: its progress, its runs, and their bad rows as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from litestar import get
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from admin.access import OF_ROW, Person, Role, needs
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from producer.campaigns.bad_row_lines import bad_row_lines
from producer.campaigns.contract import Campaign, CampaignState
from producer.campaigns.run_store import CampaignRuns
from producer.campaigns.store import CampaignStore
from recovery.resend_jobs.rules import same_person

_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]")
_LINES: Final = 500
"""Lines of one piece of the CSV."""
_SHOWN: Final = 20
"""Bad rows on the page."""


@get("/campaigns/{campaign:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def one_campaign(
    view: GivenView, parts: GivenParts, person: GivenPerson, campaign: FromPath[str]
) -> Page:
    """One campaign, from the primary. Raises Missing."""
    return campaign_page(view, parts, person, campaign)


@get("/campaigns/{campaign:str}/live", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def campaign_progress(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    campaign: FromPath[str],
    was: FromQuery[str] = "",
) -> Page:
    """The live part of the page. A campaign in another state has the whole page loaded again. Raises
    Missing."""
    found = shown_campaign(parts, person, campaign)
    headers = {"HX-Refresh": "true"} if was and found.state != was else {}
    return view.page("campaigns/progress.html", headers=headers, **_live(parts, found))


@get("/campaigns/{campaign:str}/bad-rows.csv", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def campaign_bad_rows(
    parts: GivenParts, person: GivenPerson, campaign: FromPath[str], run: FromQuery[str] = ""
) -> Stream:
    """The bad rows of a run, by default the last one, as CSV; piece by piece. Raises Missing."""
    found = shown_campaign(parts, person, campaign)
    runs = _runs(parts)
    wanted = runs.get(run or found.run_id or "")
    if wanted is None or wanted.campaign_id != found.id:
        raise Missing(run)
    name = _STRANGE.sub("-", wanted.id)
    headers = {"content-disposition": f'attachment; filename="{name}-bad-rows.csv"'}
    lines = bad_row_lines(runs.every_bad_row(wanted.id))
    return Stream(_pieces(lines), media_type="text/csv; charset=utf-8", headers=headers)


def shown_campaign(parts: ConsoleParts, person: Person, campaign: str) -> Campaign:
    """Returns a campaign that the person may see. Raises Missing."""
    store = CampaignStore(parts.databases.primary, parts.databases.clock)
    found = store.get(campaign)
    if found is None or not person.may(Role.VIEWER, found.lane):
        raise Missing(campaign)
    return found


def campaign_page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    campaign: str,
    *,
    status: int = 200,
    refused: str = "",
) -> Page:
    """Returns the page of a campaign; `refused` says why an order was refused. Raises Missing."""
    found = shown_campaign(parts, person, campaign)
    own = same_person(found.author, person.name) or same_person(found.started_by, person.name)
    bad = _runs(parts).bad_rows(found.run_id, limit=_SHOWN) if found.run_id else []
    return view.page(
        "campaigns/campaign.html",
        status=status,
        refused=refused,
        operates=person.may(Role.OPERATOR, found.lane),
        approves=not own and person.may(Role.APPROVER, found.lane),
        bad_rows=bad,
        **_live(parts, found),
    )


def _live(parts: ConsoleParts, campaign: Campaign) -> dict[str, Any]:
    """Returns the values of the live part."""
    runs = _runs(parts).of(campaign.id)
    moving = campaign.state in (CampaignState.SCHEDULED, CampaignState.RUNNING)
    return {"campaign": campaign, "runs": runs, "moving": moving}


def _runs(parts: ConsoleParts) -> CampaignRuns:
    return CampaignRuns(parts.databases.primary, parts.databases.clock)


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    for first in lines:
        yield "".join(chain([first], islice(lines, _LINES - 1)))


HANDLERS = [one_campaign, campaign_progress, campaign_bad_rows]
