"""`hongyan lost`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import MOST_ROWS, age_ms, given_reason, patterns
from hongyan.tables import listing, local_time
from hongyan.terminal import (
    DONE,
    PROBLEMS,
    complain,
    err,
    explained,
    out,
    print_json,
    settings_of,
)

if TYPE_CHECKING:
    from idempotency.lost.findings import Finding, FindingFilter, LostFindings
    from idempotency.sql_ledger import SqlLedger
    from recovery.lost.orders import OrderResult

app = typer.Typer(name="lost", help="Deliveries that a Spark job found lost.", no_args_is_help=True)

LIST = explained(
    "List deliveries that a Spark job found lost, newest first; without --status those that are undecided. "
    "`ASKED` waits for `lost resend` or `lost dismiss`. Receivers are masked.",
    "hongyan lost list",
    "hongyan lost list --status RESENT --cause passed,removed --lane 'sms.*' --since 24h --json",
)
SHOW = explained(
    "Show findings: by their number, delivery key, message id or offsets. Exits 1 if there is none.",
    "hongyan lost show 42",
    "hongyan lost show 0192f3c47b1a7cc0a1b2c3d4e5f60718 --json",
)
RESEND = explained(
    "Have recovery send lost deliveries that wait for a person. It enters each into the ledger, unless the "
    "ledger, a recall or a dead letter contradicts it; past its time it is entered as EXPIRED. Exits 1 if "
    "any was refused, or more match than --limit.",
    "hongyan lost resend 42 43 --reason 'the customer waits'",
    "hongyan lost resend --cause passed --lane sms.notice --since 2h --dry-run",
)
DISMISS = explained(
    "End findings without a send. Exits 1 if any was refused, or more match than --limit.",
    "hongyan lost dismiss 42 --reason 'sent by hand'",
    "hongyan lost dismiss --cause forgotten --since 7d --reason 'restored on purpose'",
)
_OPEN: Final = ("NEW", "ASKED")
_TITLES: Final = ("NO", "KEY", "CAUSE", "LANE", "RECEIVER", "STATUS", "FOUND", "ID", "WHY")
_LANE = Annotated[
    list[str] | None, typer.Option("--lane", metavar="PATTERN", help="Only these lanes.")
]
_CAUSE = Annotated[
    list[str] | None, typer.Option("--cause", metavar="CAUSE", help="Only these causes. Repeat it.")
]
_SINCE = Annotated[
    str, typer.Option("--since", metavar="AGO", help="Found since 30m, 1h30m or 2d ago.")
]
_NAMES = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID...", help="Numbers, delivery keys, message ids.", show_default=False
    ),
]
_REASON = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the finding.")]
_AUTHOR = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who decides.", show_default="user@host")
]
_DRY = Annotated[bool, typer.Option("--dry-run", help="Change nothing.", metavar="")]
_LIMIT = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="N at most.")
]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Repeat it.", show_default="NEW, ASKED"),
    ] = None,
    cause: _CAUSE = None,
    lane: _LANE = None,
    since: _SINCE = "",
    limit: _LIMIT = 50,
    as_json: _JSON = False,
) -> None:
    with _opened(context) as ledger:
        wanted = _wanted(ledger, status or _OPEN, cause, lane, since)
        found = ledger.findings().select(wanted, limit + 1)
    if as_json:
        print_json([_fields(one) for one in found[:limit]])
    elif found:
        _table(found[:limit])
    else:
        out().print("no such findings")
    if len(found) > limit:
        err().print("more match: give --limit, or narrow it by --cause, --lane or --since")


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="Number, delivery key, message id.")],
    as_json: _JSON = False,
) -> None:
    with _opened(context) as ledger:
        found = ledger.findings().named(name)
    if not found:
        complain(f"nothing was found lost as {name!r}: `hongyan lost list` has what was")
        raise typer.Exit(PROBLEMS)
    if as_json:
        print_json([_fields(one) for one in found])
        return
    for one in found:
        for field, value in _fields(one).items():
            shown = local_time(value) if field.endswith("_at") and value else value
            out().print(f"{field:<12} {'-' if shown is None else shown}", markup=False)


def _register(word: str, help_text: str) -> None:
    def decide(
        context: typer.Context,
        names: _NAMES = None,
        cause: _CAUSE = None,
        lane: _LANE = None,
        since: _SINCE = "",
        reason: _REASON = "",
        author: _AUTHOR = "",
        limit: _LIMIT = 1_000,
        dry_run: _DRY = False,
        as_json: _JSON = False,
    ) -> None:
        by = _author(author, reason, dry_run=dry_run)
        with _opened(context) as ledger:
            from recovery.lost.orders import CHOOSABLE, FindingOrder, order_findings

            order, findings = FindingOrder(word), ledger.findings()
            wanted = _wanted(ledger, CHOOSABLE[order], cause, lane, since)
            picked = _picked(findings, names, wanted, limit, chosen=bool(cause or lane or since))
            results = order_findings(
                findings, order, picked.found, who=by, why=reason, dry_run=dry_run
            )
        _end(results, picked, as_json=as_json)

    app.command(word, help=help_text)(decide)


_register("resend", RESEND)
_register("dismiss", DISMISS)


class Picked(NamedTuple):
    """The findings of an order."""

    found: list[Finding]
    unknown: list[str]
    """Names of no finding."""
    more: bool
    """Whether more match than the limit."""


@contextmanager
def _opened(context: typer.Context) -> Iterator[SqlLedger]:
    settings = settings_of(context)
    from hongyan.database import opened_ledger

    with opened_ledger(settings) as ledger:
        yield ledger


def _author(author: str, reason: str, *, dry_run: bool) -> str:
    if not dry_run:
        given_reason(reason, "the finding")
    return author_of(author)


def _wanted(
    ledger: SqlLedger,
    statuses: Sequence[str],
    causes: list[str] | None,
    lanes: list[str] | None,
    since: str,
) -> FindingFilter:
    from idempotency.lost.findings import FindingFilter, FindingStatus
    from message.loss import LossCause
    from message.vocabulary import lanes_matching

    named, ago = patterns(lanes), age_ms("--since", since)
    return FindingFilter(
        _known("--status", [one.upper() for one in patterns(statuses) or []], FindingStatus),
        [lane.name for lane in lanes_matching(named)] if named else (),
        _known("--cause", patterns(causes) or [], LossCause),
        0 if ago is None else ledger.now_ms() - ago,
    )


def _known(flag: str, given: list[str], words: Any) -> list[str]:
    names = [one.value for one in words]
    for word in given:
        if word not in names:
            raise WrongUsage(f"{flag} {word!r}: there are {', '.join(names)}")
    return given


def _picked(
    findings: LostFindings,
    names: list[str] | None,
    wanted: FindingFilter,
    limit: int,
    *,
    chosen: bool,
) -> Picked:
    """Returns the named findings, else those that match. Raises WrongUsage for both or neither."""
    if bool(names) == chosen:
        raise WrongUsage("give IDs, or choose by --cause, --lane or --since")
    if not names:
        found = findings.select(wanted, limit + 1)
        return Picked(found[:limit], [], len(found) > limit)
    named = {name: findings.named(name) for name in names}
    several = {one.id: one for some in named.values() for one in some}
    return Picked(list(several.values()), [name for name, some in named.items() if not some], False)


def _end(results: Sequence[OrderResult], picked: Picked, *, as_json: bool) -> None:
    """Prints the results; exits."""
    if as_json:
        print_json([_fields(r.finding) | {"result": r.result, "why": r.why} for r in results])
    else:
        for one in results:
            text = f"{one.finding.id} {one.finding.subject} {one.result}"
            out().print(f"{text}: {one.why}" if one.why else text, markup=False)
        counts = Counter(one.result for one in results)
        out().print(", ".join(f"{n:,} {word}" for word, n in counts.items()) or "no such findings")
    for name in picked.unknown:
        complain(f"nothing was found lost as {name!r}")
    if picked.more:
        err().print("more match: give --limit, or repeat it")
    bad = any(one.failed for one in results)
    raise typer.Exit(PROBLEMS if bad or picked.unknown or picked.more else DONE)


def _fields(one: Finding) -> dict[str, Any]:
    """Returns the finding without its body."""
    fields = one._asdict()
    fields["body"] = one.body is not None
    return fields | {"status": one.status.value}


def _table(found: Sequence[Finding]) -> None:
    from rich.text import Text

    table = listing(_TITLES, whole=("NO", "CAUSE", "STATUS", "FOUND"))
    for one in found:
        cells = (
            *(str(one.id), one.subject, one.cause, one.lane, one.receiver or "-"),
            *(one.status.value, local_time(one.found_at), one.message_id or "-"),
            one.decided_why or one.detail,
        )
        table.add_row(*map(Text, cells))
    out().print(table)
