"""A person's orders about a campaign: start, approve, pause, resume, cancel. The audit has each."""

from __future__ import annotations

from sqlalchemy import Connection

from admin.access import Person, Role
from admin.pages.campaigns.campaign import campaign_page, shown_campaign
from admin.pages.job_orders import OrderedWork, OrderGiven, order_routes
from admin.parts import ConsoleParts
from admin.web.view import View
from producer.campaigns.actions import CampaignActions
from producer.campaigns.contract import Campaign, CampaignRefused
from producer.campaigns.run_store import CampaignRuns
from producer.campaigns.store import CampaignStore


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


def _require(parts: ConsoleParts, person: Person, role: Role, campaign: str) -> None:
    person.require(role, shown_campaign(parts, person, campaign).lane)


def _obey(asked: OrderGiven) -> None:
    actions = actions_of(asked.parts, asked.person, asked.view, asked.order, asked.reason)
    campaign, who, reason = asked.job, asked.person.name, asked.reason
    match asked.order:
        case "start":
            actions.start(campaign, who=who, reason=reason)
        case "approve":
            actions.approve(campaign, who=who)
        case "pause":
            actions.pause(campaign, who=who, reason=reason)
        case "resume":
            actions.resume(campaign, who=who, reason=reason)
        case "cancel":
            actions.cancel(campaign, who=who, reason=reason)


CAMPAIGNS = OrderedWork("/campaigns", _require, _obey, campaign_page, CampaignRefused)
HANDLERS = order_routes(
    CAMPAIGNS,
    (
        ("start", Role.OPERATOR),  # above its threshold it waits for a second person
        ("approve", Role.APPROVER),
        ("pause", Role.OPERATOR),
        ("resume", Role.OPERATOR),
        ("cancel", Role.OPERATOR),
    ),
)
