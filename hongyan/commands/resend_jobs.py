"""`hongyan resend jobs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import age_ms, given_reason, patterns
from hongyan.resend import job_options as opt
from hongyan.terminal import err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.resend_jobs.contract import JobFilter, ResendJob
    from idempotency.sql_ledger import SqlLedger
    from recovery.resend_jobs.actions import ResendJobActions

app = typer.Typer(
    name="jobs",
    help="Resend jobs: many deliveries, previewed, approved and paced. Recovery runs them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

LIST = explained(
    "List resend jobs, the newest first.",
    "hongyan resend jobs list",
    "hongyan resend jobs list --limit 500 --json",
)
SHOW = explained(
    "Show a job: its state, the numbers of its deliveries by lane, account, fate and reason, a sample, the "
    "estimated duration, and the signature that a start wants.",
    "hongyan resend jobs show rj-1a2b3c4d5e",
    "hongyan resend jobs show rj-1a2b3c4d5e --json",
)
NEW = explained(
    "Make a job: by state, lane and time, or by IDs. Nothing is sent: recovery lists the deliveries, and "
    "`resend jobs show` has the preview.",
    "hongyan resend jobs new --state PARKED --lane 'sms.*' --since 6h --reason 'provider was down'",
    "hongyan resend jobs new --file keys.txt --new-id --rate 20 --reason 'wrong text'",
)
START = explained(
    "Start a job whose preview you looked at: give its signature, and type the number of deliveries that "
    "would be sent. Above resend.approve_above another person must approve.",
    "hongyan resend jobs start rj-1a2b3c4d5e --preview SIGNATURE --count 412 --reason 'provider is back'",
)
APPROVE = explained(
    "Approve a started job, as another person than the one who made or started it.",
    "hongyan resend jobs approve rj-1a2b3c4d5e --preview SIGNATURE --author lin",
)
PAUSE = explained(
    "Pause a job: nothing more is handed over. Deliveries under way go on.",
    "hongyan resend jobs pause rj-1a2b3c4d5e --reason 'many complaints'",
)
RESUME = explained(
    "Resume a paused job. It judges only what ends later.",
    "hongyan resend jobs resume rj-1a2b3c4d5e --reason 'provider is back'",
)
CANCEL = explained(
    "Cancel a job, for good. Deliveries under way go on, and their ends are written.",
    "hongyan resend jobs cancel rj-1a2b3c4d5e --reason 'campaign withdrawn'",
)
FAILURES = explained(
    "Print the deliveries of a job that failed or were refused, as CSV.",
    "hongyan resend jobs failures rj-1a2b3c4d5e > failures.csv",
)


_BYTE_ORDER_MARK: Final = "\ufeff"


class Desk(NamedTuple):
    """The settings, the ledger and a person's actions of one command."""

    settings: Settings
    ledger: SqlLedger
    actions: ResendJobActions


@app.command("list", help=LIST)
def list_(context: typer.Context, limit: opt.Limit = 50, as_json: opt.AsJson = False) -> None:
    from hongyan.resend.job_output import show_jobs

    with _desk(context) as desk:
        found = desk.ledger.resend_jobs().newest(limit + 1)
    if as_json:
        print_json(found[:limit])
    elif found:
        show_jobs(found[:limit])
    else:
        out().print("no resend jobs")
    if len(found) > limit:
        err().print("there are more: give --limit")


@app.command("show", help=SHOW)
def show(context: typer.Context, job: opt.JobId, as_json: opt.AsJson = False) -> None:
    from hongyan.resend.job_output import show_preview

    with _desk(context) as desk:
        preview = desk.actions.preview(job)
    if as_json:
        from recovery.resend_jobs.actions import fields_of

        print_json(fields_of(preview))
    else:
        show_preview(preview)


@app.command("new", help=NEW)
def new(
    context: typer.Context,
    names: opt.Names = None,
    file: opt.File = None,
    state: opt.State = None,
    lane: opt.Lane = None,
    since: opt.Since = "",
    until: opt.Until = "",
    account: opt.Account = "",
    row_reason: opt.RowReason = "",
    template: opt.Template = "",
    in_doubt: opt.InDoubt = False,
    expired: opt.Expired = False,
    new_id: opt.NewId = False,
    rate: opt.Rate = None,
    job: opt.Job = "",
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    if sum(map(bool, (names, file, state))) != 1:
        raise WrongUsage("give IDs, or --file, or --state with --lane and --since")
    if bool(state) != bool(lane and since):
        raise WrongUsage("--state wants --lane and --since")
    if not state and (lane or since or until or account or row_reason or template):
        raise WrongUsage(
            "--lane, --since, --until, --account, --reason-code and --template want --state"
        )
    reason = given_reason(reason, "the job")
    ages = age_ms("--since", since), age_ms("--until", until)
    chosen = {
        "states": _states(state or ()),
        "lanes": _lanes(lane or ()),
        "account": account,
        "reason": row_reason,
        "template": template,
        "in_doubt": in_doubt,
        "expired": expired,
    }
    given = _lines(file) if file else names or []
    by = author_of(author)
    with _desk(context) as desk:
        from idempotency.resend_jobs.contract import ResendMode
        from recovery.resend_jobs.factory import limits_of

        made = desk.actions.make(
            ResendMode.COPY if new_id else ResendMode.AGAIN,
            _filter(chosen, ages, desk.ledger.now_ms()),
            limits_of(desk.settings.resend, rate),
            who=by,
            reason=reason,
            names=given,
            job_id=job,
        )
    _tell(made, as_json=as_json)


@app.command("start", help=START)
def start(
    context: typer.Context,
    job: opt.JobId,
    preview: opt.Preview = "",
    count: opt.Count = -1,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    if not preview or count < 0:
        raise WrongUsage("give --preview SIGNATURE and --count N, as `resend jobs show` has them")
    reason = given_reason(reason, "the job")
    by = author_of(author)
    with _desk(context) as desk:
        done = desk.actions.start(job, preview, typed=count, who=by, reason=reason)
    _tell(done, as_json=as_json)


@app.command("approve", help=APPROVE)
def approve(
    context: typer.Context,
    job: opt.JobId,
    preview: opt.Preview = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    if not preview:
        raise WrongUsage("give --preview SIGNATURE, as `resend jobs show` has it")
    by = author_of(author)
    with _desk(context) as desk:
        done = desk.actions.approve(job, preview, who=by)
    _tell(done, as_json=as_json)


@app.command("pause", help=PAUSE)
def pause(
    context: typer.Context,
    job: opt.JobId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "pause", job, reason, author, as_json=as_json)


@app.command("resume", help=RESUME)
def resume(
    context: typer.Context,
    job: opt.JobId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "resume", job, reason, author, as_json=as_json)


@app.command("cancel", help=CANCEL)
def cancel(
    context: typer.Context,
    job: opt.JobId,
    reason: opt.Reason = "",
    author: opt.Author = "",
    as_json: opt.AsJson = False,
) -> None:
    _order(context, "cancel", job, reason, author, as_json=as_json)


@app.command("failures", help=FAILURES)
def failures(context: typer.Context, job: opt.JobId) -> None:
    with _desk(context) as desk:
        from recovery.resend_jobs.failures import csv_lines

        desk.actions.get(job)
        for line in csv_lines(desk.ledger.job_items().failures(job)):
            sys.stdout.write(line)


@contextmanager
def _desk(context: typer.Context) -> Iterator[Desk]:
    settings = settings_of(context)
    from hongyan.database import opened_ledger
    from recovery.resend_jobs.factory import actions_on

    with opened_ledger(settings) as ledger:
        yield Desk(settings, ledger, actions_on(ledger))


def _order(
    context: typer.Context, verb: str, job: str, reason: str, author: str, *, as_json: bool
) -> None:
    """Gives one order, and prints what became of the job."""
    reason, by = given_reason(reason, "the job"), author_of(author)
    with _desk(context) as desk:
        verbs = {
            "pause": desk.actions.pause,
            "resume": desk.actions.resume,
            "cancel": desk.actions.cancel,
        }
        done = verbs[verb](job, who=by, reason=reason)
    _tell(done, as_json=as_json)


def _filter(chosen: dict[str, Any], ages: Sequence[int | None], now: int) -> JobFilter:
    """Returns the selection; an age is in milliseconds, None without one."""
    from idempotency.resend_jobs.contract import JobFilter

    since, until = (0 if age is None else now - age for age in ages)
    return JobFilter(**chosen, since=since, until=until)


def _states(given: Sequence[str]) -> list[str]:
    from idempotency.resend_jobs.freezing import SELECTABLE

    states = [one.upper() for one in patterns(given) or ()]
    for state in states:
        if state not in SELECTABLE:
            raise WrongUsage(f"--state {state}: here it may be {', '.join(SELECTABLE)}")
    return states


def _lanes(given: Sequence[str]) -> list[str]:
    from message.vocabulary import lanes_matching

    named = patterns(given)
    return [lane.name for lane in lanes_matching(named)] if named else []


def _lines(file: Path) -> list[str]:
    """Returns the IDs of a file, one a line: an ID may have blanks. Raises WrongUsage."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise WrongUsage(f"{file}: it cannot be read as text: {why}") from exc
    lines = map(str.strip, text.removeprefix(_BYTE_ORDER_MARK).splitlines())
    found = [line for line in lines if line]
    if not found:
        raise WrongUsage(f"{file}: it has no IDs; write one a line")
    return found


def _tell(job: ResendJob, *, as_json: bool) -> None:
    from hongyan.resend.job_output import job_line

    if as_json:
        print_json(job)
    else:
        out().print(job_line(job), markup=False)
