"""`hongyan alerts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import duration_ms
from hongyan.tables import listing, local_time
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from idempotency.alerts.book import AlertBook, AlertShown, SilenceShown

app = typer.Typer(name="alerts", help="Open alerts and silences.", no_args_is_help=True)

LIST = explained(
    "List the open alerts, oldest first, with their start, the count not sent yet, silences, and the "
    "section of docs/runbook.md that says what to do.",
    "hongyan alerts list",
    "hongyan alerts list --all --json",
)
SILENCE = explained(
    "Keep alerts of a rule quiet for a while: they are counted and listed, but not posted and not "
    "logged. The silence ends by itself. The end of an alert is still sent wherever its beginning was.",
    "hongyan alerts silence lag --for 2h --reason 'spring campaign'",
    "hongyan alerts silence breaker_open 'sms.notice main' --for 30m --reason 'provider repairs'",
)
UNSILENCE = explained(
    "End a silence now. Exits 1 if there is none of that name.",
    "hongyan alerts unsilence lag",
    "hongyan alerts unsilence breaker_open 'sms.notice main'",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_RULE = Annotated[str, typer.Argument(metavar="RULE", help="As `alerts list` shows it.")]
_SUBJECT = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="As `alerts list` shows it; without it: every alert of the rule.",
        show_default=False,
    ),
]


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Include alerts that are over.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    with _book(context) as book:
        alerts, silences = book.alerts(every=every), book.silences()
    if as_json:
        print_json({"alerts": [_told(one) for one in alerts], "silences": silences})
        return
    _table(alerts)
    for silence in silences:
        out().print(_silence_line(silence), markup=False)


@app.command("silence", help=SILENCE)
def silence(
    context: typer.Context,
    rule: _RULE,
    subject: _SUBJECT = "",
    for_: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="How long: 30m, 1h30m, 2d.", show_default=False),
    ] = "",
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="Shown to others.", show_default=False),
    ] = "",
    author: Annotated[
        str,
        typer.Option("--author", metavar="NAME", help="Who silences.", show_default="user@host"),
    ] = "",
    as_json: _JSON = False,
) -> None:
    if not for_ or not reason.strip():
        raise WrongUsage("give --for TIME and --reason TEXT")
    for_ms = duration_ms("--for", for_)
    if not for_ms:
        raise WrongUsage(f"--for {for_!r}: a silence lasts longer than that")
    _check_rule(rule)
    with _book(context) as book:
        made = book.silence(rule, subject, for_ms, author=author_of(author), reason=reason)
    if as_json:
        print_json(made)
    else:
        out().print(_silence_line(made), markup=False)


@app.command("unsilence", help=UNSILENCE)
def unsilence(context: typer.Context, rule: _RULE, subject: _SUBJECT = "") -> None:
    with _book(context) as book:
        ended = book.unsilence(rule, subject)
    if not ended:
        complain(f"there is no silence of {_name(rule, subject)}; `hongyan alerts list` has them")
        raise typer.Exit(PROBLEMS)
    err().print(f"the silence of {_name(rule, subject)} has ended", markup=False)


@contextmanager
def _book(context: typer.Context) -> Iterator[AlertBook]:
    settings = settings_of(context)
    from hongyan.database import existing
    from idempotency.alerts.book import AlertBook
    from idempotency.sql_ledger import clock_of

    database = existing(settings)
    try:
        yield AlertBook(database, clock_of(database))
    finally:
        database.close()


def _check_rule(rule: str) -> None:
    from sending.alerts.notifier import RULES

    if rule not in RULES:
        raise WrongUsage(f"there is no rule {rule!r}; there are {', '.join(sorted(RULES))}")


def _told(alert: AlertShown) -> dict[str, Any]:
    import msgspec

    from sending.alerts.notifier import runbook

    return {**msgspec.to_builtins(alert), "runbook": runbook(alert.rule)}


def _table(alerts: Sequence[AlertShown]) -> None:
    from rich.text import Text

    from sending.alerts.notifier import runbook

    if not alerts:
        out().print("no open alerts")
        return
    titles = ("SINCE", "RULE", "SUBJECT", "STATE", "UNTOLD", "TEXT", "RUNBOOK")
    table = listing(titles, whole=set(titles) - {"TEXT"})
    for one in alerts:
        kept = str(one.kept) if one.silenced_until is None else f"{one.silenced} silenced"
        row = (local_time(one.since), one.rule, one.subject or "-", _state(one), kept, one.text)
        table.add_row(*map(Text, (*row, runbook(one.rule))))
    out().print(table)


def _state(alert: AlertShown) -> str:
    return f"{alert.state}, not posted: {alert.not_posted}" if alert.not_posted else alert.state


def _silence_line(silence: SilenceShown) -> str:
    name = _name(silence.rule, silence.subject)
    until = local_time(silence.until)
    return f"{name} is silenced until {until} by {silence.author}: {silence.reason}"


def _name(rule: str, subject: str) -> str:
    return f"{rule} {subject!r}" if subject else rule
