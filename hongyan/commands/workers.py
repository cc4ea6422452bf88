"""`hongyan workers`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hongyan.author import author_of
from hongyan.errors import NotDone
from hongyan.flags import given_reason
from hongyan.tables import age, listing
from hongyan.terminal import explained, out, print_json, settings_of

if TYPE_CHECKING:
    from idempotency.fleet.status import Process
    from idempotency.sql_ledger import SqlLedger

app = typer.Typer(
    name="workers", help="Processes of every kind with a heartbeat.", no_args_is_help=True
)

LIST = explained(
    "List the processes of every kind that live, or were lost within a day, as the ledger has them.",
    "hongyan workers list",
    "hongyan workers list --json",
)
DRAIN = explained(
    "Ask one process to drain and end, as SIGTERM does, within five seconds. It exits 0; whatever "
    "supervises it may start it again. Waits until it drains; exits 1 if it does not.",
    "hongyan workers drain worker-1 --reason 'its host is replaced'",
    "hongyan workers drain worker-1 --reason repairs --author lin --json",
)
ANSWER_S: Final = 15.0
"""Longest wait for the process's answer."""
_LOOK_S: Final = 0.2
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.callback()
def _group() -> None:
    """Keeps `workers` a group of commands."""


@app.command("list", help=LIST)
def list_(context: typer.Context, as_json: _JSON = False) -> None:
    with _ledger(context) as ledger:
        processes, now = ledger.fleet_status().processes(), ledger.now_ms()
    if as_json:
        print_json([_fields(one) for one in processes])
    elif processes:
        _table(processes, now)
    else:
        out().print("no process has a heartbeat: no worker, recovery or receipts process runs")


@app.command("drain", help=DRAIN)
def drain(
    context: typer.Context,
    worker: Annotated[str, typer.Argument(metavar="ID", help="As `workers list` shows it.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Kept, and written to its log.")
    ] = "",
    author: Annotated[
        str,
        typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host"),
    ] = "",
    as_json: _JSON = False,
) -> None:
    reason = given_reason(reason, "the order")
    by = author_of(author)
    with _ledger(context) as ledger:
        before = _process(ledger, worker)
        if not ledger.controls().drain(worker, author=by, reason=reason.strip()):
            raise NotDone(
                f"no process {worker!r} lives: `hongyan workers list` shows those that do"
            )
        state = _await_draining(ledger, worker, before.started_at if before else 0)
    if state not in ("DRAINING", "ENDED"):
        raise NotDone(
            f"the order is kept, but {worker} did not begin to drain within {ANSWER_S:.0f} s: see its log"
        )
    if as_json:
        print_json({"id": worker, "state": state})
    else:
        out().print(f"{worker} {'drains' if state == 'DRAINING' else 'has ended'}", markup=False)


@contextmanager
def _ledger(context: typer.Context) -> Iterator[SqlLedger]:
    settings = settings_of(context)
    from hongyan.database import opened_ledger

    with opened_ledger(settings) as ledger:
        yield ledger


def _await_draining(ledger: SqlLedger, worker: str, started_at: int) -> str:
    """Returns the state of the process once it drains or has ended, or after ANSWER_S. A successor of the
    same name has another `started_at`."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        found = _process(ledger, worker)
        if found is None or found.lost or found.started_at != started_at:
            return "ENDED"
        if found.state == "DRAINING" or time.monotonic() >= deadline:
            return found.state
        time.sleep(_LOOK_S)


def _process(ledger: SqlLedger, worker: str) -> Process | None:
    found = [one for one in ledger.fleet_status().processes() if one.id == worker]
    return found[0] if found else None


def _fields(process: Process) -> dict[str, Any]:
    return process._asdict()


def _table(processes: Sequence[Process], now: int) -> None:
    from rich.text import Text

    titles = ("PROCESS", "KIND", "STATE", "HOST", "PID", "THREADS", "UP", "VERSION")
    table = listing(titles, right=("PID", "THREADS"), whole=set(titles) - {"PROCESS", "HOST"})
    for one in processes:
        state = "LOST" if one.lost else one.state
        cells = (one.id, one.kind, state, one.host, str(one.pid), str(one.threads))
        table.add_row(*map(Text, (*cells, age(now - one.started_at), one.program or "-")))
    out().print(table)
