"""Output of `hongyan campaign`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from hongyan.tables import listing, local_time
from hongyan.terminal import complain, err, out

if TYPE_CHECKING:
    from producer.campaigns.contract import Campaign, CampaignRun
    from producer.campaigns.creation import SurveyedCampaign

_TITLES: Final = (
    "CAMPAIGN",
    "STATE",
    "LANE",
    "TEMPLATE",
    "ROWS",
    "NEXT",
    "MADE",
    "BY",
    "REASON",
    "NOTE",
)
_RUN_TITLES: Final = ("DUE", "STATE", "DONE", "SENT", "BAD", "REPEATED", "STARTED", "ENDED")
_MS: Final = 1_000


def show_campaigns(campaigns: Sequence[Campaign]) -> None:
    """Prints campaigns as a listing."""
    from rich.text import Text

    table = listing(_TITLES, right=("ROWS",), whole=("CAMPAIGN", "STATE", "NEXT"))
    for one in campaigns:
        cells = (
            *(one.id, one.state.value, one.lane, one.template, f"{one.crowd.rows:,}"),
            *(zone_time(one, one.next_at), local_time(one.created_at), one.author),
            *(one.reason, one.note or ""),
        )
        table.add_row(*map(Text, cells))
    out().print(table)


def show_campaign(campaign: Campaign, runs: Sequence[CampaignRun]) -> None:
    """Prints a campaign, its runs and its next step."""
    crowd, limits = campaign.crowd, campaign.limits
    lines = [
        f"{campaign.id}  {campaign.state.value}  {campaign.lane}  {campaign.template}",
        f"made {local_time(campaign.created_at)} by {campaign.author}: {campaign.reason}",
        f"file {crowd.path}: {crowd.rows:,} rows, {crowd.size:,} bytes, SHA-256 {crowd.sha256}",
        f"at most {limits.rate_per_s:g} rows a second{_hours(campaign)}",
        _times(campaign),
    ]
    if campaign.note:
        lines.append(f"note of {campaign.noted_by or '-'}: {campaign.note}")
    for line in lines:
        out().print(line, markup=False)
    _show_runs(campaign, runs)
    if next_step := _next_step(campaign):
        out().print(next_step, markup=False)


def show_new(made: SurveyedCampaign) -> None:
    """Prints a new campaign, and what its first rows showed."""
    campaign = made.campaign
    for one in made.shown:
        err().print(f"line {one.line}: {one.detail}", markup=False)
    if made.bad:
        complain(f"{made.bad:,} of the first {made.checked:,} rows are bad and will not be sent")
    out().print(f"{campaign.id}  {campaign.crowd.rows:,} rows", markup=False)
    out().print(_next_step(campaign), markup=False)


def campaign_line(campaign: Campaign) -> str:
    """Returns what became of a campaign by an order."""
    line = f"{campaign.id}  {campaign.state.value}"
    if campaign.state.value == "WAITING":
        return f"{line}  {campaign.crowd.rows:,} rows: another person must approve"
    if campaign.state.value == "SCHEDULED":
        return f"{line}  {zone_time(campaign, campaign.next_at)}; `hongyan campaign run` sends it"
    return line


def zone_time(campaign: Campaign, at: int | None) -> str:
    """Returns a time on the clock of the campaign's zone; the number for one that no clock shows, which
    older programs took."""
    if at is None:
        return "-"
    zone = ZoneInfo(campaign.schedule.zone)
    try:
        return f"{datetime.fromtimestamp(at / _MS, UTC).astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"
    except (ValueError, OverflowError):
        return f"{at} ms"


def _hours(campaign: Campaign) -> str:
    hours = campaign.limits.hours
    return f", within {hours} {campaign.schedule.zone}" if hours else ""


def _times(campaign: Campaign) -> str:
    schedule = campaign.schedule
    if schedule.cron:
        following = zone_time(campaign, campaign.next_at)
        return f"cron {schedule.cron} ({schedule.zone}), next {following}"
    return f"once, {zone_time(campaign, schedule.at) if schedule.at else 'at its start'}"


def _show_runs(campaign: Campaign, runs: Sequence[CampaignRun]) -> None:
    from rich.text import Text

    if not runs:
        return
    table = listing(_RUN_TITLES, right=("DONE", "SENT", "BAD", "REPEATED"), whole=("DUE", "STATE"))
    for run in runs:
        done = f"{run.done:,} of {campaign.crowd.rows:,}"
        numbers = f"{run.sent:,}", f"{run.bad:,}", f"{run.repeated:,}"
        ended = "-" if run.ended_at is None else local_time(run.ended_at)
        times = local_time(run.started_at), ended
        cells = (zone_time(campaign, run.due_at), run.state.value, done, *numbers, *times)
        table.add_row(*map(Text, cells))
    out().print(table)


def _next_step(campaign: Campaign) -> str:
    """Returns the command that a person would type next; empty without one."""
    steps = {
        "NEW": f"to start it: hongyan campaign start {campaign.id} --reason TEXT",
        "WAITING": f"another person: hongyan campaign approve {campaign.id}",
        "PAUSED": f"to go on: hongyan campaign resume {campaign.id} --reason TEXT",
    }
    return steps.get(campaign.state.value, "")
