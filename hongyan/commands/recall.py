"""`hongyan recall`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.tables import listing
from hongyan.terminal import DONE, PROBLEMS, complain, err, explained, out, print_json, settings_of
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from recovery.recall.recall import Recalled

HELP = explained(
    "Recall a notification: cancel its deliveries that are queued, held or waiting, take sent ones back "
    "where the provider can, and report each. Safe to repeat. Exits 1 if a delivery stays sent, or if the "
    "ledger has nothing of that name. The recall holds in that case, too: its records may still be in "
    "Kafka, but the name may be mistyped.",
    "hongyan recall 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan recall --biz-id order-1001 --json",
    "hongyan recall 0192f3c47b1a7cc0a1b2c3d4e5f60718 --ahead     before anything of it was read",
    "hongyan recall --biz-id order-1001 --wait 0     do not wait for calls under way",
)
_POLL_S: Final = 0.2
_STYLES = {
    "cancelled": "green",
    "recalled": "green",
    "not_sent": "dim",
    "too_late": "bold yellow",
    "not_possible": "bold yellow",
    "ask_again": "bold red",
}


def recall(
    context: typer.Context,
    message_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A notification's id.", show_default=False)
    ] = None,
    biz: Annotated[
        str | None,
        typer.Option(
            "--biz-id",
            metavar="ID",
            help="Every notification of this business id that was created until now.",
            show_default=False,
        ),
    ] = None,
    whole_calls: Annotated[
        bool,
        typer.Option(
            "--whole-calls",
            help="Where a provider takes back whole calls only: also from receivers of other "
            "notifications that shared one.",
            metavar="",
        ),
    ] = False,
    ahead: Annotated[
        bool,
        typer.Option("--ahead", help="Accept that nothing of it was read yet.", metavar=""),
    ] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait", parser=seconds(), metavar="TIME", help="Longest wait for calls under way."
        ),
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    if bool(message_id) == bool(biz):
        raise WrongUsage("name one of the two: an ID, or --biz-id ID")
    settings = settings_of(context)
    from idempotency.recalls import Kind
    from recovery.recall.factory import open_recalling

    with ExitStack() as stack:
        opened = open_recalling(settings, stack, _until(wait_s))
        kind, name = (Kind.BIZ, biz) if biz else (Kind.MESSAGE, message_id)
        found = opened.recalling.run(kind, name or "", opened.life_ms, whole_calls=whole_calls)
    if as_json:
        print_json(found)
    else:
        _show(found, opened.unseen)
    good = found.stopped
    if not found.deliveries and not ahead:
        good = False
        complain(
            f"nothing is known of {found.name!r}: check the name; the recall holds, and --ahead accepts"
            " that nothing of it was read yet"
        )
    raise typer.Exit(DONE if good else PROBLEMS)


def _until(wait_s: float) -> Callable[[], bool]:
    """Returns a function that pauses a moment and returns True, or False once `wait_s` is over."""
    deadline = time.monotonic() + wait_s

    def wait() -> bool:
        left = deadline - time.monotonic()
        if left > 0:
            time.sleep(min(_POLL_S, left))
        return left > 0

    return wait


def _show(found: Recalled, unseen: Sequence[str]) -> None:
    from rich.text import Text

    if found.deliveries:
        titles = ("ID", "RECEIVER", "LANE", "STATE", "RECALL", "WHY")
        table = listing(titles, whole=("ID", "RECALL"))
        for one in found.deliveries:
            verdict = Text(one.verdict, _STYLES[one.verdict])
            row = (one.message_id, one.receiver, one.lane, one.state.value, verdict, one.why)
            table.add_row(*row)
        out().print(table)
        _show_unlisted(found)
    else:
        out().print(f"the ledger has nothing of {found.name!r} yet", markup=False)
    out().print("its records that are still in Kafka are dropped when they are read", style="dim")
    if unseen:
        lanes = ", ".join(unseen)
        err().print(f"best_effort lanes have no ledger: what is queued there goes out ({lanes})")


def _show_unlisted(found: Recalled) -> None:
    if found.unlisted:
        verdicts = ", ".join(f"{count:,} {name}" for name, count in found.verdicts.items())
        out().print(f"and {found.unlisted:,} more; of all deliveries: {verdicts}", style="bold")
