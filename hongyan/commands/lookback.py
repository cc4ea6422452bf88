"""`hongyan lookback`: the service itself, and a person's decisions about what it could not resolve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import MOST_ROWS
from hongyan.serving import serving
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
    from lookback.desk import SqlLookbackDesk
    from lookback.operator import TxDecision, TxShown

HELP = explained(
    "Forward the messages of committed business transactions, and ask about those without a decision, "
    "until SIGTERM or Ctrl-C.",
    "hongyan lookback",
    "hongyan lookback show 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan lookback unresolved list",
)
SHOW = explained(
    "Show transactions by tx_id or biz_id, archived ones too. Exits 1 if there is none.",
    "hongyan lookback show order-1001",
    "hongyan lookback show 0192f3c47b1a7cc0a1b2c3d4e5f60718 --json",
)
LIST = explained(
    "List transactions that wait for a person, the oldest first.",
    "hongyan lookback unresolved list",
    "hongyan lookback unresolved list --biz-type order --json",
)
DECIDE = explained(
    "Decide about unresolved transactions, after asking the business: COMMIT forwards the message, "
    "ROLLBACK drops it. Exits 1 if any cannot be decided.",
    "hongyan lookback unresolved decide TX commit --reason 'the order is paid'",
    "hongyan lookback unresolved decide TX1 TX2 rollback --reason 'no such orders'",
)
_TITLES: Final = ("TX", "KIND", "BIZ ID", "STATE", "DECISION", "CHECKS", "SINCE", "WHY")
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_LIMIT = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="N at most.")
]

app = typer.Typer(
    name="lookback", help=HELP, short_help="Transactional messages.", invoke_without_command=True
)
unresolved = typer.Typer(
    name="unresolved", help="Transactions that wait for a person.", no_args_is_help=True
)
app.add_typer(unresolved)


@app.callback()
def lookback(context: typer.Context) -> None:
    if context.invoked_subcommand is not None:
        return
    with serving(context, "lookback") as (settings, stop):
        from backends.interpreter import tune_interpreter
        from dispatcher.process import leave
        from lookback.process import run_lookback

        tune_interpreter()
        leave(run_lookback(settings, stop))


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="tx_id or biz_id.")],
    as_json: _JSON = False,
) -> None:
    with _opened(context) as desk:
        found = desk.find(name)
    if as_json:
        print_json(found)
    elif found:
        for one in found:
            _tell(one)
    else:
        complain(f"there is no transaction {name!r}: give its tx_id or its biz_id")
    raise typer.Exit(DONE if found else PROBLEMS)


@unresolved.command("list", help=LIST)
def list_(
    context: typer.Context,
    biz_type: Annotated[
        str, typer.Option("--biz-type", metavar="KIND", help="Only of this kind.")
    ] = "",
    limit: _LIMIT = 50,
    as_json: _JSON = False,
) -> None:
    with _opened(context) as desk:
        page = desk.unresolved(biz_type=biz_type, limit=limit)
    if as_json:
        print_json(list(page.rows))
    elif page.rows:
        _table(list(page.rows))
    else:
        out().print("no transaction waits for a person")
    if page.after:
        err().print("more wait: give --limit, or narrow it by --biz-type")


@unresolved.command("decide", help=DECIDE)
def decide(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="TX... DECISION", help="tx_ids, then commit or rollback.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with it.")],
    author: Annotated[
        str, typer.Option("--author", metavar="NAME", help="Who decides.", show_default="user@host")
    ] = "",
    as_json: _JSON = False,
) -> None:
    names, decision = _wanted(words, reason)
    decided: list[TxShown] = []
    refused: dict[str, str] = {}
    from lookback.operator import NotResolvable

    with _opened(context) as desk:
        for name in names:
            try:
                decided.append(
                    desk.resolve(name, decision, person=author_of(author), reason=reason.strip())
                )
            except NotResolvable as exc:
                refused[name] = str(exc)
    if as_json:
        print_json({"decided": decided, "refused": refused})
    elif decided:
        _table(decided)
    for text in refused.values():
        complain(text)
    raise typer.Exit(PROBLEMS if refused else DONE)


def _wanted(words: list[str], reason: str) -> tuple[list[str], TxDecision]:
    """Raises WrongUsage."""
    from lookback.operator import TxDecision

    *names, last = words
    if last.upper() not in list(TxDecision) or not names:
        raise WrongUsage("give one or more tx_ids, then commit or rollback")
    if not reason.strip():
        raise WrongUsage("--reason: say why, in a few words; it is kept with the transaction")
    return list(dict.fromkeys(names)), TxDecision(last.upper())


@contextmanager
def _opened(context: typer.Context) -> Iterator[SqlLookbackDesk]:
    from idempotency.sql_ledger import open_ledger
    from lookback.opening import open_lookback_desk

    settings = settings_of(context)
    with closing(open_ledger(settings)) as ledger:
        yield open_lookback_desk(ledger, settings)


def _table(rows: list[TxShown]) -> None:
    table = listing(_TITLES, right=("CHECKS",))
    for one in rows:
        since = local_time(one.updated_at)
        cells = (one.tx_id, one.biz_type, one.biz_id, one.state.value, one.decision or "-")
        table.add_row(*cells, str(one.checks), since, one.reason or one.why or "-")
    out().print(table)


def _tell(one: TxShown) -> None:
    by = f" by {one.person or one.decided_by}" if one.decided_by else ""
    out().print(f"{one.tx_id}  {one.biz_type} {one.biz_id}  {one.state.value}", markup=False)
    lines = {
        "decision": f"{one.decision}{by}" if one.decision else "none yet",
        "why": one.why,
        "waits": one.reason,
        "topic": one.topic or "no prepare came",
        "forwarded": one.forwarded_to,
        "checks": str(one.checks),
        "last error": one.last_error,
        "conflict": one.conflict,
        "prepared": local_time(one.prepared_at) if one.prepared_at else "",
        "changed": local_time(one.updated_at),
    }
    for name, text in lines.items():
        if text:
            out().print(f"  {name:<11}{text}", markup=False)
