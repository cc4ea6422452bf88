"""A person's orders about a campaign: start, approve, pause, resume, cancel. The audit has each."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from litestar import post
from litestar.params import FromPath
from sqlalchemy import Connection

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.campaigns.campaign import campaign_page, shown_campaign
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from producer.campaigns.actions import CampaignActions
from producer.campaigns.contract import Campaign, CampaignRefused
from producer.campaigns.run_store import CampaignRuns
from producer.campaigns.store import CampaignStore

CampaignOrder = Callable[[CampaignActions, str], object]
"""Gives one order; takes the actions and the reason."""


def actions_of(
    parts: ConsoleParts, person: Person, view: View, order: str, reason: str
) -> CampaignActions:
    """Returns the actions, which write the order's row of the audit in their own transaction."""

    def also(connection: Connection, campaign: Campaign) -> None:
        parts.journal.record(
            connection,
            person=person.name,
            action=f"campaign.{order}",
            subject=campaign.id,
            lane=campaign.lane,
            reason=reason,
            address=view.address,
        )

    database, clock = parts.databases.primary, parts.databases.clock
    return CampaignActions(CampaignStore(database, clock), CampaignRuns(database, clock), also)


@post(
    "/campaigns/{campaign:str}/start",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def start_campaign(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    campaign: FromPath[str],
) -> Page:
    """Starts a campaign; above its threshold it waits for a second person."""

    def give(actions: CampaignActions, reason: str) -> object:
        return actions.start(campaign, who=person.name, reason=reason)

    return _given(view, parts, person, form, campaign, "start", give)


@post(
    "/campaigns/{campaign:str}/approve",
    opt=needs(Role.APPROVER, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def approve_campaign(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    campaign: FromPath[str],
) -> Page:
    """Lets a started campaign go on, as a second person."""

    def give(actions: CampaignActions, _reason: str) -> object:
        return actions.approve(campaign, who=person.name)

    return _given(view, parts, person, form, campaign, "approve", give, Role.APPROVER)


@post(
    "/campaigns/{campaign:str}/pause",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def pause_campaign(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    campaign: FromPath[str],
) -> Page:
    """Pauses a campaign: no further row is sent."""

    def give(actions: CampaignActions, reason: str) -> object:
        return actions.pause(campaign, who=person.name, reason=reason)

    return _given(view, parts, person, form, campaign, "pause", give)


@post(
    "/campaigns/{campaign:str}/resume",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def resume_campaign(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    campaign: FromPath[str],
) -> Page:
    """Resumes a paused campaign from its last row."""

    def give(actions: CampaignActions, reason: str) -> object:
        return actions.resume(campaign, who=person.name, reason=reason)

    return _given(view, parts, person, form, campaign, "resume", give)


@post(
    "/campaigns/{campaign:str}/cancel",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def cancel_campaign(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    campaign: FromPath[str],
) -> Page:
    """Cancels a campaign, for good."""

    def give(actions: CampaignActions, reason: str) -> object:
        return actions.cancel(campaign, who=person.name, reason=reason)

    return _given(view, parts, person, form, campaign, "cancel", give)


def _given(
    view: View,
    parts: ConsoleParts,
    person: Person,
    form: SentForm,
    campaign: str,
    order: str,
    give: CampaignOrder,
    role: Role = Role.OPERATOR,
) -> Page:
    """Gives the order and shows the campaign. A refused order changes nothing, and its reason is on the
    page. Raises Missing, Forbidden."""
    person.require(role, shown_campaign(parts, person, campaign).lane)
    try:
        reason = form.reason()
        give(actions_of(parts, person, view, order, reason), reason)
    except WrongForm as wrong:
        said = view.told(wrong.key, wrong.arguments)
        return campaign_page(view, parts, person, campaign, status=422, refused=said)
    except CampaignRefused as exc:
        return campaign_page(view, parts, person, campaign, status=409, refused=str(exc))
    return view.redirect(f"/campaigns/{quote(campaign, safe='')}")


HANDLERS = [start_campaign, approve_campaign, pause_campaign, resume_campaign, cancel_campaign]
