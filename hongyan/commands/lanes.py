"""`hongyan lanes`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from hongyan.author import author_of
from hongyan.errors import NotDone, WrongUsage
from hongyan.flags import MOST_ROWS, duration_ms, given_reason, patterns
from hongyan.tables import listing, local_time
from hongyan.terminal import err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.fleet.controls import Controls, LanePause
    from idempotency.fleet.served_lanes import ServedLane
    from idempotency.sql_ledger import SqlLedger

app = typer.Typer(name="lanes", help="Lanes: their load and their pauses.")

LIST = explained(
    "List the lanes that are served, paused or behind: partitions, lag, load, rate, breakers, and who "
    "paused a lane until when. `?` means that the lag is not known.",
    "hongyan lanes list",
    "hongyan lanes list --all --json",
)
PAUSE = explained(
    "Stop sending of whole lanes, in every worker and recovery, within five seconds. Calls under way end. "
    "Nothing is claimed or sent until `lanes resume`, or until --for is over; the TTL goes on. Waits until "
    "each live process has reported that it obeys; exits 1 if one does not.",
    "hongyan lanes pause sms.marketing --reason 'wrong text in the campaign'",
    "hongyan lanes pause 'sms.*,email.notice' --for 30m --reason 'provider repairs' --author lin",
)
RESUME = explained(
    "End pauses of lanes; work is taken up within five seconds. Exits 1 if none of them is paused.",
    "hongyan lanes resume sms.marketing",
    "hongyan lanes resume '*' --reason 'repaired'",
)
HISTORY = explained(
    "List pauses, the newest first, with author, reason and end.",
    "hongyan lanes history",
    "hongyan lanes history --limit 500 --json",
)
OBEYED_S: Final = 15.0
"""Longest wait for the reports of the processes."""
_LOOK_S: Final = 0.2
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_LANES = Annotated[
    list[str],
    typer.Argument(metavar="LANE...", help="As CHANNEL.KIND with * and ?; or separated by commas."),
]
_AUTHOR = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host")
]


class Opened(NamedTuple):
    """The settings and the ledger of one command."""

    settings: Settings
    ledger: SqlLedger
    controls: Controls


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_(context)


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Include lanes that nobody serves.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    with _opened(context) as opened:
        rows = [row for row in rows_of(opened, _named(["*"])) if every or not row.idle]
        now = opened.ledger.now_ms()
    from hongyan.output.lanes import as_fields, show_lanes

    if as_json:
        print_json([as_fields(row) for row in rows])
    elif rows:
        show_lanes(rows, now)
    else:
        out().print("no lane is served, paused or behind")


@app.command("pause", help=PAUSE)
def pause(
    context: typer.Context,
    lanes: _LANES,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Kept, and shown to others.")
    ] = "",
    for_: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="How long: 30m, 2h; default: until resumed."),
    ] = "",
    author: _AUTHOR = "",
    as_json: _JSON = False,
) -> None:
    reason = given_reason(reason, "the pause")
    for_ms = duration_ms("--for", for_) if for_ else None
    if for_ms == 0:
        raise WrongUsage(f"--for {for_!r}: a pause lasts longer than that")
    by, names = author_of(author), _named(lanes)
    with _opened(context) as opened:
        replaced = opened.controls.pause(names, for_ms, author=by, reason=reason.strip())
        _show_replaced(replaced)
        rows = _await_obeyed(opened, names)
    _show_result(rows, as_json=as_json)


@app.command("resume", help=RESUME)
def resume(
    context: typer.Context,
    lanes: _LANES,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept.")] = "",
    author: _AUTHOR = "",
    as_json: _JSON = False,
) -> None:
    by, names = author_of(author), _named(lanes)
    with _opened(context) as opened:
        ended = opened.controls.resume(names, author=by, reason=reason.strip())
        if not ended:
            raise NotDone(
                "none of these lanes is paused: `hongyan lanes list` shows those that are"
            )
        names = [pause.lane for pause in ended]
        rows = _await_obeyed(opened, names)
    _show_result(rows, as_json=as_json)


@app.command("history", help=HISTORY)
def history(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="N at most.")
    ] = 50,
    as_json: _JSON = False,
) -> None:
    with _opened(context) as opened:
        found, now = opened.controls.history(limit), opened.ledger.now_ms()
    if as_json:
        print_json([one._asdict() | {"over_at": one.over_at(now)} for one in found])
    elif found:
        _show_history(found, now)
    else:
        out().print("no lane was ever paused")


@contextmanager
def _opened(context: typer.Context) -> Iterator[Opened]:
    settings = settings_of(context)
    from hongyan.database import opened_ledger

    with opened_ledger(settings) as ledger:
        yield Opened(settings, ledger, ledger.controls())


def _named(given: Sequence[str]) -> list[str]:
    from message.vocabulary import lanes_matching

    found = [lane.name for lane in lanes_matching(patterns(given) or [])]
    if not found:
        raise WrongUsage(f"{', '.join(map(repr, given))}: it matches no lane")
    return found


def rows_of(opened: Opened, lanes: Sequence[str], *, lag: bool = True) -> list[ServedLane]:
    """Returns the lanes as they are now; without `lag`, the broker is not asked."""
    from hongyan.output.lanes import lane_rows

    processes, pauses = opened.ledger.fleet_status().processes(), opened.controls.pauses()
    return lane_rows(lanes, processes, pauses, opened.settings if lag else None)


def _await_obeyed(opened: Opened, lanes: Sequence[str]) -> list[ServedLane]:
    """Returns the lanes once every live process has reported, or after OBEYED_S."""
    deadline = time.monotonic() + OBEYED_S
    while True:
        rows = rows_of(opened, lanes, lag=False)
        if not any(row.not_obeying for row in rows) or time.monotonic() >= deadline:
            return rows
        time.sleep(_LOOK_S)


def _show_replaced(replaced: Sequence[LanePause]) -> None:
    for one in replaced:
        text = f"{one.lane}: replaces the pause of {one.author} ({one.reason})"
        err().print(text, markup=False)


def _show_result(rows: Sequence[ServedLane], *, as_json: bool) -> None:
    """Prints what holds now. Raises NotDone if a process has not reported in time."""
    from hongyan.output.lanes import as_fields, pause_line

    if as_json:
        print_json([as_fields(row) for row in rows])
    else:
        for row in rows:
            line = pause_line(row.pause) if row.pause else f"{row.lane} is not paused"
            out().print(f"{line} ({row.workers} workers)", markup=False)
    late = sorted({name for row in rows for name in row.not_obeying})
    if late:
        raise NotDone(
            f"the order is kept, but {', '.join(late)} did not report within {OBEYED_S:.0f} s that it"
            " obeys: see its log, and `hongyan lanes list`"
        )


def _show_history(found: Sequence[LanePause], now: int) -> None:
    from rich.text import Text

    table = listing(("LANE", "PAUSED", "ENDED", "BY", "REASON"), whole=("PAUSED", "ENDED"))
    for one in found:
        over_at = one.over_at(now)
        ended = local_time(over_at) if over_at is not None else "-"
        by = one.author if one.ended_by in (None, one.author) else f"{one.author}, {one.ended_by}"
        reason = f"{one.reason}; {one.ended_reason}" if one.ended_reason else one.reason
        table.add_row(*map(Text, (one.lane, local_time(one.paused_at), ended, by, reason)))
    out().print(table)
