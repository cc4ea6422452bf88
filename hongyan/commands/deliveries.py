"""`hongyan deliveries`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from hongyan.flags import MOST_ROWS, age_ms, patterns
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
    "hongyan deliveries list --template SMS_1 --lane sms.notice --since 30m",
    "hongyan deliveries list --state RETRY --limit 500 --json",
)
LOOKED: Final = 5_000
"""Rows that --account and --reason-code look through, and rows of an open state of one lane. For ended
deliveries, state, lane and time have an index."""
LOOKED_INTO: Final = 1_000
"""Rows whose payload --template opens."""
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
        typer.Option(
            "--since", metavar="AGO", help="In that state since 30m, 1h30m or 2d ago, or later."
        ),
    ] = "",
    account: Annotated[
        str, typer.Option("--account", metavar="NAME", help="Last tried through this one.")
    ] = "",
    template: Annotated[
        str,
        typer.Option("--template", metavar="NAME", help="Only of this template, by the payload."),
    ] = "",
    row_reason: Annotated[
        str, typer.Option("--reason-code", metavar="CODE", help="Only with this reason.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="N at most.")
    ] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    settings = settings_of(context)
    from hongyan.database import existing
    from idempotency.sql_ledger import open_ledger
    from recovery.resend.selection import Filters, archived_note, wanted

    existing(settings).close()  # raises before `open_ledger` makes a missing SQLite file
    longest_ms = age_ms("--since", since)
    filters = Filters(state or _DEFAULT, patterns(lane) or (), longest_ms, account, row_reason)
    with closing(open_ledger(settings)) as ledger:
        chosen = wanted(filters, _STATES, ledger.now_ms(), doubted=None)
        answer = listed(ledger, chosen, template, limit)
        shown = answer.found[:limit]
        receivers = _receivers(ledger, shown)
        archived = ledger.archived(settings.recovery.archive_dir, settings.base)
        note = archived_note(archived, chosen.since)
    if as_json:
        print_json([_fields(pick) | {"receiver": receivers.get(pick.key)} for pick in shown])
    else:
        _table(shown, receivers)
    if note:
        err().print(note)
    if len(answer.found) > limit:
        err().print("more match: give --limit, or narrow it by --state, --lane or --since")
    elif answer.cut:
        err().print(
            f"only the oldest {answer.looked:,} rows were looked through: narrow it by --state, --lane or"
            " --since"
        )
    elif answer.cut_open:
        err().print(
            f"not all rows of {', '.join(answer.cut_open)} were looked through, but those that are due"
            " first: the console's search finds the others"
        )


class Listed(NamedTuple):
    """The deliveries that fit."""

    found: list[Pick]
    """At most one more than was asked for."""
    looked: int
    """Rows that were looked through."""
    cut: bool
    """Whether more rows might fit that were not looked through."""
    cut_open: Sequence[str] = ()
    """The same, of open states: state and lane of each such part."""


def listed(ledger: SqlLedger, chosen: Wanted, template: str, limit: int) -> Listed:
    """Returns the deliveries of the selection. Account, reason and template have no index, so the number of
    rows that they look through is bounded."""
    import msgspec

    from idempotency.recovery.selection import ENDED, PAGE

    narrow = bool(chosen.account or chosen.reason or template)
    most = LOOKED_INTO if template else LOOKED
    size = PAGE if narrow else min(limit + 1, PAGE)
    found: list[Pick] = []
    looked = 0
    ended = msgspec.structs.replace(
        chosen.by_index(), states=[state for state in chosen.states if state in ENDED]
    )
    for page in ledger.picks().pages(ended, ledger.now_ms(), size):
        looked += len(page)
        found += _fitting(ledger, page, chosen, template)
        if len(found) > limit:
            return Listed(found[: limit + 1], looked, cut=False)
        if narrow and looked >= most:
            return Listed(found, looked, cut=True)
    size, cut_open = LOOKED_INTO if template else limit + 1, []
    for part in ledger.picks().open_rows(chosen, max(LOOKED, limit + 1), size + 1):
        found += _fitting(ledger, part.picks[:size], chosen, template)
        if len(found) > limit:
            return Listed(found[: limit + 1], looked, cut=False)
        if part.cut or len(part.picks) > size:
            cut_open.append(f"{part.state.value} in {part.lane}")
    return Listed(found, looked, cut=False, cut_open=cut_open)


def _fitting(ledger: SqlLedger, page: list[Pick], chosen: Wanted, template: str) -> Iterator[Pick]:
    fitting = [pick for pick in page if chosen.fits(pick)]
    if not template:
        yield from fitting
        return
    named = ledger.queries().templates([pick.key for pick in fitting])
    yield from (pick for pick in fitting if named.get(pick.key) == template)


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
