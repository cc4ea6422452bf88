"""`hongyan campaign`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from hongyan.author import author_of
from hongyan.campaigns import options as opt
from hongyan.errors import WrongUsage
from hongyan.flags import duration_ms, given_reason, pairs
from hongyan.terminal import err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.sql_ledger import SqlLedger
    from producer.campaigns.actions import CampaignActions
    from producer.campaigns.contract import Campaign, CampaignSchedule, CrowdColumns

app = typer.Typer(
    name="campaign",
    help="Campaigns: a crowd file, a template and a time; sent row by row, through any crash.",
    short_help="Send a crowd file, once or by cron.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

RUN = explained(
    "Send campaigns when their time comes, until SIGTERM or Ctrl-C. Several processes may run: one of them "
    "sends a campaign, and another one goes on after a crash.",
    "hongyan campaign run",
)
LIST = explained(
    "List campaigns, the newest first.",
    "hongyan campaign list",
    "hongyan campaign list --limit 500 --json",
)
SHOW = explained(
    "Show a campaign: its file, times and state, and the progress of its runs.",
    "hongyan campaign show cm-1a2b3c4d5e",
    "hongyan campaign show cm-1a2b3c4d5e --json",
)
NEW = explained(
    "Make a campaign from a crowd file: CSV with a header, or JSON lines; packed with gzip or not. Columns "
    "become the template's variables of the same name, or as --map says. Its first rows are checked. "
    "Nothing is sent before `campaign start`.",
    "hongyan campaign new crowd.csv --lane sms.marketing --template sale --reason 'autumn sale'",
    "hongyan campaign new vips.jsonl.gz --lane sms.marketing --template sale --receiver phone"
    " --map name=nick --at '2026-12-24 09:00' --reason 'Christmas'",
    "hongyan campaign new digest.csv --lane email.notice --template digest --cron '0 9 * * MON'"
    " --hours 09:00-21:00 --rate 50 --reason 'weekly digest'",
)
START = explained(
    "Start a campaign: its time comes, or it runs at once. Above resend.approve_above rows another person "
    "must approve. A file that changed since `new` is refused.",
    "hongyan campaign start cm-1a2b3c4d5e --reason 'texts are checked'",
)
APPROVE = explained(
    "Approve a started campaign, as another person than the one who made or started it.",
    "hongyan campaign approve cm-1a2b3c4d5e --author lin",
)
PAUSE = explained(
    "Pause a campaign: no further row is sent.",
    "hongyan campaign pause cm-1a2b3c4d5e --reason 'many complaints'",
)
RESUME = explained(
    "Resume a paused campaign from its last row. A file that changed is refused.",
    "hongyan campaign resume cm-1a2b3c4d5e --reason 'texts are right'",
)
CANCEL = explained(
    "Cancel a campaign, for good. Rows that are in Kafka go on.",
    "hongyan campaign cancel cm-1a2b3c4d5e --reason 'withdrawn'",
)
BAD_ROWS = explained(
    "Print the rows of a campaign's last run that were not sent, as CSV: line, code, detail.",
    "hongyan campaign bad-rows cm-1a2b3c4d5e > bad.csv",
    "hongyan campaign bad-rows cm-1a2b3c4d5e --json",
)


class CampaignTools(NamedTuple):
    """The settings, the ledger and a person's actions of one command."""

    settings: Settings
    ledger: SqlLedger
    actions: CampaignActions


@app.command("run", help=RUN)
def run(context: typer.Context) -> None:
    from hongyan.serving import serving

    with serving(context, "campaigns") as (settings, stop):
        from functools import partial

        from backends.interpreter import tune_interpreter
        from dispatcher.process import leave
        from producer.campaigns.process import run_campaigns
        from producer.campaigns.row_checks import row_checks

        tune_interpreter()
        leave(run_campaigns(settings, stop, partial(row_checks, settings)))


@app.command("list", help=LIST)
def list_(context: typer.Context, limit: opt.Limit = 50, as_json: opt.AsJson = False) -> None:
    from hongyan.campaigns.output import show_campaigns
    from producer.campaigns.store import campaigns_of

    with _tools(context) as tools:
        found = campaigns_of(tools.ledger).newest(limit + 1)
    if as_json:
        print_json(found[:limit])
    elif found:
        show_campaigns(found[:limit])
    else:
        out().print("no campaigns")
    if len(found) > limit:
        err().print("there are more: give --limit")


@app.command("show", help=SHOW)
def show(context: typer.Context, campaign: opt.CampaignId, as_json: opt.AsJson = False) -> None:
    import msgspec

    from hongyan.campaigns.output import show_campaign
    from producer.campaigns.run_store import runs_of

    with _tools(context) as tools:
        found = tools.actions.get(campaign)
        runs = runs_of(tools.ledger).of(campaign)
    if as_json:
        print_json(msgspec.to_builtins(found) | {"runs": msgspec.to_builtins(runs, str_keys=True)})
    else:
        show_campaign(found, runs)


@app.command("new", help=NEW)
def new(
    context: typer.Context,
    file: opt.File,
    lane: opt.Lane = "",
    template: opt.Template = "",
    receiver: opt.Receiver = "receiver",
    biz_id: opt.BizId = "",
    mapped: opt.Mapped = None,
    constant: opt.Constant = None,
    at: opt.At = "",
    cron: opt.Cron = "",
    zone: opt.Zone = "Asia/Shanghai",
    rate: opt.Rate = None,
    hours: opt.Hours = "",
    ttl: opt.Ttl = "",
    account: opt.Account = "",
    once_per_receiver: opt.OncePerReceiver = False,
    encoding: opt.Encoding = "utf-8",
    separator: opt.Separator = ",",
    campaign: opt.Campaign = "",
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    from hongyan.campaigns.output import show_new
    from hongyan.template_source import templates_now
    from producer.campaigns.creation import CampaignDraft, limits_from
    from producer.campaigns.row_checks import row_checks

    reason = given_reason(reason, "the campaign")
    _check_new(named=bool(lane and template), twice_timed=bool(at and cron))
    _check_form(encoding, separator)
    with _tools(context) as tools:
        limits = limits_from(
            tools.settings,
            rate_per_s=rate,
            hours=hours,
            ttl_ms=duration_ms("--ttl", ttl) if ttl else None,
            account=account,
            once_per_receiver=once_per_receiver,
        )
        draft = CampaignDraft(
            path=file,
            lane=lane,
            template=template,
            columns=_columns(receiver, biz_id, mapped, constant),
            schedule=_schedule(at, cron, zone),
            limits=limits,
            author=author_of(author),
            reason=reason,
            encoding="gb18030" if encoding == "gb18030" else "utf-8",
            separator=separator,
            campaign_id=campaign,
        )
        checks = row_checks(tools.settings, templates_now(tools.settings))
        made = tools.actions.make(draft, checks)
    if as_json:
        print_json(made._asdict() | {"shown": [one._asdict() for one in made.shown]})
    else:
        show_new(made)


def _columns(
    receiver: str, biz_id: str, mapped: list[str] | None, constant: list[str] | None
) -> CrowdColumns:
    from producer.campaigns.contract import CrowdColumns

    return CrowdColumns(
        receiver=receiver,
        biz_id=biz_id,
        variables=pairs("--map", mapped),
        constants=pairs("--set", constant),
    )


def _check_new(*, named: bool, twice_timed: bool) -> None:
    if not named:
        raise WrongUsage("give --lane CHANNEL.KIND and --template NAME")
    if twice_timed:
        raise WrongUsage("give either --at or --cron")


def _check_form(encoding: str, separator: str) -> None:
    if len(separator) != 1 or encoding not in ("utf-8", "gb18030"):
        raise WrongUsage("--separator is one character; --encoding is utf-8 or gb18030")


def _schedule(at: str, cron: str, zone: str) -> CampaignSchedule:
    """Returns the schedule. Raises CampaignRefused for a time or a zone that is none."""
    from producer.campaigns.contract import CampaignSchedule
    from producer.campaigns.schedule import once_at, zone_of

    return CampaignSchedule(at=once_at(at, zone_of(zone)) if at else 0, cron=cron, zone=zone)


@app.command("start", help=START)
def start(
    context: typer.Context,
    campaign: opt.CampaignId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "start", campaign, reason, author, as_json=as_json)


@app.command("approve", help=APPROVE)
def approve(
    context: typer.Context,
    campaign: opt.CampaignId,
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    with _tools(context) as tools:
        done = tools.actions.approve(campaign, who=author_of(author))
    _tell(done, as_json=as_json)


@app.command("pause", help=PAUSE)
def pause(
    context: typer.Context,
    campaign: opt.CampaignId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "pause", campaign, reason, author, as_json=as_json)


@app.command("resume", help=RESUME)
def resume(
    context: typer.Context,
    campaign: opt.CampaignId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "resume", campaign, reason, author, as_json=as_json)


@app.command("cancel", help=CANCEL)
def cancel(
    context: typer.Context,
    campaign: opt.CampaignId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "cancel", campaign, reason, author, as_json=as_json)


@app.command("bad-rows", help=BAD_ROWS)
def bad_rows(context: typer.Context, campaign: opt.CampaignId, as_json: opt.AsJson = False) -> None:
    from producer.campaigns.bad_row_lines import bad_row_lines
    from producer.campaigns.run_store import runs_of

    with _tools(context) as tools:
        found = tools.actions.get(campaign)
        rows = runs_of(tools.ledger).every_bad_row(found.run_id or "")
        if as_json:
            print_json([one._asdict() for one in rows])
            return
        for line in bad_row_lines(rows):
            sys.stdout.write(line)


@contextmanager
def _tools(context: typer.Context) -> Iterator[CampaignTools]:
    settings = settings_of(context)
    from hongyan.database import opened_ledger
    from producer.campaigns.actions import CampaignActions
    from producer.campaigns.run_store import runs_of
    from producer.campaigns.store import campaigns_of

    with opened_ledger(settings) as ledger:
        actions = CampaignActions(campaigns_of(ledger), runs_of(ledger))
        yield CampaignTools(settings, ledger, actions)


def _order(
    context: typer.Context, verb: str, campaign: str, reason: str, author: str, *, as_json: bool
) -> None:
    """Gives one order, and prints what became of the campaign."""
    reason = given_reason(reason, "the campaign")
    by = author_of(author)
    with _tools(context) as tools:
        verbs: dict[str, Any] = {
            "start": tools.actions.start,
            "pause": tools.actions.pause,
            "resume": tools.actions.resume,
            "cancel": tools.actions.cancel,
        }
        done = verbs[verb](campaign, who=by, reason=reason)
    _tell(done, as_json=as_json)


def _tell(campaign: Campaign, *, as_json: bool) -> None:
    from hongyan.campaigns.output import campaign_line

    if as_json:
        print_json(campaign)
    else:
        out().print(campaign_line(campaign), markup=False)
