"""A person's actions on campaigns: make, start, approve, pause, resume, cancel.

Every change is written under the version of the campaign that it was decided on. Of two persons the second
is refused. Start and resume compare the crowd file with the one of the campaign's creation.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from producer.campaigns.contract import (
    Campaign,
    CampaignOvertaken,
    CampaignRefused,
    CampaignState,
    CrowdSource,
    RunState,
    can_move,
)
from producer.campaigns.creation import CampaignDraft, SurveyedCampaign, surveyed
from producer.campaigns.crowd_file import CrowdUnusable, CrowdWatch
from producer.campaigns.notifications import RowChecks
from producer.campaigns.run_store import CampaignRuns, end_run
from producer.campaigns.schedule import next_due
from producer.campaigns.store import CampaignNoted, CampaignStore, nothing_noted
from recovery.operator_rules import AUTHOR_AT_MOST, WHY_AT_MOST
from recovery.resend_jobs.rules import same_person
from tracing.masks import masked_text

_S: Final = CampaignState
_REASON: Final = "a reason is required: it is kept with the campaign"


class CampaignActions:
    """Every method raises CampaignRefused and LedgerError alone. `who` is the person's name."""

    def __init__(
        self, store: CampaignStore, runs: CampaignRuns, also: CampaignNoted = nothing_noted
    ) -> None:
        """`also` writes in the transaction of each change, such as a row of an audit."""
        self._store = store
        self._runs = runs
        self._also = also

    def make(self, draft: CampaignDraft, checks: RowChecks) -> SurveyedCampaign:
        """Looks through the file and makes a NEW campaign; nothing is sent. The same order under the same
        name returns the campaign that is there; another one is refused."""
        draft = draft._replace(author=_author(draft.author), reason=_text(draft.reason))
        found = surveyed(draft, checks, self._store.now_ms())
        made = self._store.make(found.campaign, self._also)
        if other := _difference(made, found.campaign):
            raise CampaignRefused(
                f"there is a campaign {made.id} already, with {other}: give this one a name of its own"
            )
        return found._replace(campaign=made)

    def get(self, campaign_id: str) -> Campaign:
        """Returns a campaign."""
        found = self._store.get(campaign_id)
        if found is None:
            raise CampaignRefused(f"there is no campaign {campaign_id!r}")
        return found

    def start(self, campaign_id: str, *, who: str, reason: str) -> Campaign:
        """Starts a campaign; above its threshold it waits for a second person."""
        campaign = self.get(campaign_id)
        if campaign.state is not _S.NEW:
            raise CampaignRefused(f"campaign {campaign_id} is {campaign.state}, and not NEW")
        note = _note(who, reason)
        _check_file(campaign)
        now = self._store.now_ms()
        changes: dict[str, Any] = {"started_by": note["noted_by"], "started_at": now}
        if campaign.needs_approval:
            return self._advance(campaign, state=_S.WAITING, **changes, **note)
        due = _first_due(campaign, now)
        return self._advance(campaign, state=_S.SCHEDULED, next_at=due, **changes, **note)

    def approve(self, campaign_id: str, *, who: str) -> Campaign:
        """Lets a started campaign go on, as a second person."""
        campaign = self.get(campaign_id)
        if campaign.state is not _S.WAITING:
            raise CampaignRefused(
                f"campaign {campaign_id} is {campaign.state}: it waits for no approval"
            )
        if same_person(campaign.started_by, who) or same_person(campaign.author, who):
            raise CampaignRefused("another person must approve: you made or started this campaign")
        _check_file(campaign)
        now = self._store.now_ms()
        due = _first_due(campaign, now)
        by: dict[str, Any] = {"approved_by": _author(who), "approved_at": now}
        return self._advance(campaign, state=_S.SCHEDULED, next_at=due, **by)

    def pause(self, campaign_id: str, *, who: str, reason: str) -> Campaign:
        """Pauses a campaign: no further row is sent. Rows under way go on."""
        campaign = self._movable(campaign_id, _S.PAUSED)
        note = _note(who, reason)
        return self._advance(campaign, state=_S.PAUSED, paused_from=campaign.state, **note)

    def resume(self, campaign_id: str, *, who: str, reason: str) -> Campaign:
        """Resumes a paused campaign from its checkpoint. Bad rows from before are not judged again."""
        campaign = self.get(campaign_id)
        if campaign.state is not _S.PAUSED or campaign.paused_from is None:
            raise CampaignRefused(f"campaign {campaign_id} is {campaign.state}, and not paused")
        note = _note(who, reason)
        _check_file(campaign)
        if campaign.paused_from is _S.SCHEDULED and campaign.schedule.cron:
            note["next_at"] = _first_due(campaign, self._store.now_ms())
        if campaign.paused_from is _S.RUNNING and campaign.run_id is not None:
            run = self._runs.get(campaign.run_id)
            if run is not None:
                self._runs.judge_anew(run)
        return self._advance(campaign, state=campaign.paused_from, paused_from=None, **note)

    def cancel(self, campaign_id: str, *, who: str, reason: str) -> Campaign:
        """Ends a campaign, for good. Rows in Kafka go on."""
        campaign = self._movable(campaign_id, _S.CANCELLED)
        note = _note(who, reason)
        now = self._store.now_ms()

        def also(connection: Connection, moved: Campaign) -> None:
            end_run(connection, moved, RunState.CANCELLED, now)
            self._also(connection, moved)

        ends: dict[str, Any] = {"paused_from": None, "next_at": None, "ended_at": now}
        return self._advance(campaign, also, state=_S.CANCELLED, **ends, **note)

    def _movable(self, campaign_id: str, target: CampaignState) -> Campaign:
        campaign = self.get(campaign_id)
        if not can_move(campaign.state, target):
            raise CampaignRefused(
                f"campaign {campaign_id} is {campaign.state}, and cannot become {target}"
            )
        return campaign

    def _advance(
        self, campaign: Campaign, also: CampaignNoted | None = None, **changes: Any
    ) -> Campaign:
        try:
            return self._store.advance(campaign, also or self._also, **changes)
        except CampaignOvertaken:
            now = self.get(campaign.id)
            by = f" by {now.noted_by}" if now.noted_by else ""
            raise CampaignRefused(
                f"campaign {campaign.id} was changed meanwhile{by} and is {now.state}: look at it again"
            ) from None


def _difference(there: Campaign, ordered: Campaign) -> str:
    """Returns the part in which a campaign is not the one that was ordered; empty if it is."""
    parts = {
        "another lane": there.lane == ordered.lane,
        "another template": there.template == ordered.template,
        "another crowd file": _crowd(there) == _crowd(ordered),
        "other columns": there.columns == ordered.columns,
        "other times": there.schedule == ordered.schedule,
        "other limits": there.limits == ordered.limits,
    }
    return next((part for part, is_same in parts.items() if not is_same), "")


def _crowd(campaign: Campaign) -> CrowdSource:
    """Returns the crowd file without its path: the same bytes, read alike, are the same crowd."""
    return msgspec.structs.replace(campaign.crowd, path="")


def _first_due(campaign: Campaign, now: int) -> int:
    """Returns the time of the next run; a single one whose time is over runs at once."""
    if not campaign.schedule.cron:
        return max(campaign.schedule.at, now)
    due = next_due(campaign.schedule, now)
    if due is None:
        raise CampaignRefused(f"cron {campaign.schedule.cron!r} never comes: make a new campaign")
    return due


def _check_file(campaign: Campaign) -> None:
    try:
        CrowdWatch(campaign.crowd).check()
    except CrowdUnusable as exc:
        raise CampaignRefused(str(exc)) from exc


def _note(who: str, reason: str) -> dict[str, Any]:
    return {"noted_by": _author(who), "note": _text(reason)}


def _author(who: str) -> str:
    name = " ".join(who.split())[:AUTHOR_AT_MOST]
    if not name:
        raise CampaignRefused("a person's name is required")
    return name


def _text(reason: str) -> str:
    if not reason.strip():
        raise CampaignRefused(_REASON)
    return masked_text(reason.strip()[:WHY_AT_MOST])
