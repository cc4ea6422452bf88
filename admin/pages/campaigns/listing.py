"""`/campaigns`: the newest campaigns of the person's lanes, and older ones page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from litestar import get
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import cursor, keys_of
from admin.web.view import Page
from producer.campaigns.contract import Campaign
from producer.campaigns.store import CampaignStore

PER_PAGE: Final = 50


class CampaignList(NamedTuple):
    """A page of campaigns, the newest first."""

    campaigns: Sequence[Campaign]
    next: str
    """Cursor of the next page; empty: this is the last one."""


@get("/campaigns", opt=needs(Role.VIEWER), sync_to_thread=True)
def list_campaigns(
    view: GivenView, parts: GivenParts, person: GivenPerson, after: FromQuery[str] = ""
) -> Page:
    """The campaigns of the person's lanes."""
    store = CampaignStore(parts.databases.reads, parts.databases.reads_clock)
    before = keys_of(after, tuple[int, str])
    found = store.newest(PER_PAGE + 1, before) if before else store.newest(PER_PAGE + 1)
    some = found[:PER_PAGE]
    further = cursor((some[-1].created_at, some[-1].id)) if len(found) > PER_PAGE else ""
    seen = [one for one in some if person.may(Role.VIEWER, one.lane)]
    return view.page("campaigns/listing.html", value=CampaignList(seen, further))


HANDLERS = [list_campaigns]
