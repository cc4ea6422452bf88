"""`hongyan deliveries`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hongyan.resend.selection import Filters, archived_note, wanted
from hongyan.tables import listing, local_time
from hongyan.terminal import err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from idempotency.recovery.selection import Pick, Wanted
    from idempotency.sql_ledger import SqlLedger

app = typer.Typer(name="deliveries", help="Deliveries in the ledger.", no_args_is_help=True)

LIST = explained(
    "List deliveries by state, oldest first, lane by lane; without --state those that wait for a person or "
    "are in doubt. Receivers are masked. `hongyan trace ID` finds a delivery that was sent.",
    "hongyan deliveries list",
    "hongyan deliveries list --state REJECTED --lane 'sms.*' --since 6h --account main",
    "hongyan deliveries list --state RETRY --limit 500 --json",
)
_STATES: Final = (
    "PARKED",
    "UNKNOWN",
    "REJECTED",
    "EXPIRED",
    "UNDELIVERED",
    "DROPPED",
    "RETRY",
    "IN_FLIGHT",
)
"""States that indexes find (idempotency/recovery/selection.py)."""
_DEFAULT: Final = ("PARKED", "UNKNOWN")
_TITLES: Final = (
    *("KEY", "LANE", "RECEIVER", "STATE", "SINCE", "REASON"),
    *("ATTEMPT", "ACCOUNT", "ID", "BIZ ID"),
)


@app.callback()
def _group() -> None:
    """Keeps `deliveries` a group of commands."""


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Repeat it.", show_default="PARKED, UNKNOWN"),
    ] = None,
    lane: Annotated[
        list[str] | None, typer.Option("--lane", metavar="PATTERN", help="Only these lanes.")
    ] = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="AGO", help="In that state since 90m, 6h, 7d or later."),
    ] = "",
    account: Annotated[
        str, typer.Option("--account", metavar="NAME", help="Last tried through this one.")
    ] = "",
    row_reason: Annotated[
        str, typer.Option("--row-reason", metavar="CODE", help="Only with this reason.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="N at most.")
    ] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    settings = settings_of(context)
    from hongyan.database import existing
    from idempotency.sql_ledger import open_ledger

    existing(settings).close()  # raises before `open_ledger` makes a missing SQLite file
    filters = Filters(state or _DEFAULT, lane, since, account, row_reason)
    with closing(open_ledger(settings)) as ledger:
        chosen = wanted(filters, _STATES, ledger.now_ms(), doubted=None)
        found = list(islice(_found(ledger, chosen, limit), limit + 1))
        shown = found[:limit]
        receivers = _receivers(ledger, shown)
        archived = ledger.archived(settings.recovery.archive_dir, settings.base)
        note = archived_note(archived, chosen.since)
    if as_json:
        print_json([_fields(pick) | {"receiver": receivers.get(pick.key)} for pick in shown])
    else:
        _table(shown, receivers)
    if note:
        err().print(note)
    if len(found) > limit:
        err().print("more match: give --limit, or narrow it by --state, --lane or --since")


def _found(ledger: SqlLedger, chosen: Wanted, limit: int) -> Iterator[Pick]:
    from idempotency.recovery.selection import PAGE

    for page in ledger.picks().pages(chosen, ledger.now_ms(), min(limit + 1, PAGE)):
        yield from page


def _receivers(ledger: SqlLedger, picks: list[Pick]) -> dict[str, str]:
    """Returns masked receivers by delivery key, but for those that `database.payload_key` does not open."""
    from tracing.masks import mask

    opened = ledger.queries().receivers([pick.key for pick in picks])
    channels = {pick.key: pick.lane.partition(".")[0] for pick in picks}
    return {key: mask(channels[key], receiver) for key, receiver in opened.items()}


def _fields(pick: Pick) -> dict[str, Any]:
    return {
        "delivery_key": pick.key,
        "message_id": pick.message_id,
        "biz_id": pick.biz_id,
        "lane": pick.lane,
        "state": pick.state.value,
        "reason": pick.reason,
        "attempt": pick.attempt,
        "account": pick.account,
        "created_at": pick.created_at,
        "updated_at": pick.updated_at,
        "next_at": pick.next_at,
        "expires_at": pick.expires_at,
        "policy_version": pick.policy_version,
        "in_doubt": pick.doubted,
        "recalled": pick.recalled,
    }


def _table(picks: list[Pick], receivers: dict[str, str]) -> None:
    from rich.text import Text

    if not picks:
        out().print("no such deliveries")
        return
    table = listing(_TITLES, whole=("KEY", "STATE", "SINCE"))
    for pick in picks:
        doubt = " (in doubt)" if pick.doubted and pick.state.value == "PARKED" else ""
        cells = (
            *(pick.key, pick.lane, receivers.get(pick.key, "unreadable")),
            *(f"{pick.state.value}{doubt}", local_time(pick.updated_at)),
            *(pick.reason or "", str(pick.attempt), pick.account or "", pick.message_id),
            pick.biz_id or "",
        )
        table.add_row(*map(Text, cells))
    out().print(table)
