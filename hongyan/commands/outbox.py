"""`hongyan outbox`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from hongyan.author import author_of
from hongyan.errors import NotDone
from hongyan.flags import given_reason
from hongyan.tables import listing, local_time
from hongyan.terminal import explained, out, print_json, settings_of

if TYPE_CHECKING:
    from hongyan_client.outbox.operator_orders import OutboxOperator, OutboxRow
    from hongyan_client.outbox.relay_rows import OutboxBacklog, RelayHeartbeat, RelayRows

app = typer.Typer(name="outbox", help="Outboxes: what waits, who publishes, what is parked.")

LIST: Final = explained(
    "Show the outbox of relay.outbox_url: the backlog and its age, the relays, and the rows that wait. No "
    "content and no receiver is shown. Exits 1 if a row is parked.",
    "hongyan outbox list",
    "hongyan outbox list --parked --json",
)
SHOW: Final = explained(
    "Show the rows of one notification: state, attempts, last error. Exits 1 if there is none.",
    "hongyan outbox show 0192f3c47b1a7cc0a1b2c3d4e5f60718",
)
RELEASE: Final = explained(
    "Have a parked notification published again, with all its attempts and the same id. What follows it "
    "under its ordering key goes after it. Exits 1 if none is parked.",
    "hongyan outbox release 0192f3c47b1a7cc0a1b2c3d4e5f60718 --reason 'the topic is there now'",
)
RECALL: Final = explained(
    "Take back a delayed, waiting or parked notification that has certainly not gone. Exits 1 if there is "
    "none: one that may be in Kafka is for `hongyan recall`.",
    "hongyan outbox recall 0192f3c47b1a7cc0a1b2c3d4e5f60718 --reason 'the order was cancelled'",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_ID = Annotated[str, typer.Argument(metavar="ID", help="The notification's id.")]
_AUTHOR = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host")
]
_REASON = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the row.")]
_OPEN: Final = ("PENDING", "SENDING", "PARKED")
_TITLES: Final = ("ID", "STATE", "ATTEMPTS", "TOPIC", "CREATED", "DUE", "LAST ERROR")


class OpenedOutboxCommand(NamedTuple):
    """The outbox of one command."""

    operator: OutboxOperator
    rows: RelayRows


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_(context)


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    parked: Annotated[
        bool, typer.Option("--parked", help="Only rows that wait for a person.", metavar="")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000, metavar="N", help="Most rows.")
    ] = 50,
    as_json: _JSON = False,
) -> None:
    with _opened(context) as (operator, relays):
        backlog, beats, now = relays.backlog(), relays.heartbeats(), relays.now_ms()
        rows = operator.rows(("PARKED",) if parked else _OPEN, limit)
    if as_json:
        print_json(
            {
                "backlog": backlog._asdict(),
                "relays": [one._asdict() for one in beats],
                "rows": [one._asdict() for one in rows],
            }
        )
    else:
        _show_backlog(backlog, beats, now)
        _show_rows(rows)
    if backlog.parked:
        raise typer.Exit(1)


@app.command("show", help=SHOW)
def show(context: typer.Context, message_id: _ID, as_json: _JSON = False) -> None:
    with _opened(context) as (operator, _):
        rows = operator.of_message(message_id)
    if not rows:
        raise NotDone(f"{message_id} is not in the outbox; rows are kept for relay.keep_hours")
    if as_json:
        print_json([one._asdict() for one in rows])
    else:
        _show_rows(rows)


@app.command("release", help=RELEASE)
def release(
    context: typer.Context,
    message_id: _ID,
    reason: _REASON = "",
    author: _AUTHOR = "",
    as_json: _JSON = False,
) -> None:
    by, why = author_of(author), given_reason(reason, "the row")
    with _opened(context) as (operator, _):
        rows = operator.release(message_id, by, why)
    if not rows:
        raise NotDone(f"{message_id} is not parked; see `hongyan outbox show {message_id}`")
    _tell({"id": message_id, "released": rows}, f"{message_id} is released", as_json)


@app.command("recall", help=RECALL)
def recall(
    context: typer.Context,
    message_id: _ID,
    reason: _REASON = "",
    author: _AUTHOR = "",
    as_json: _JSON = False,
) -> None:
    by, why = author_of(author), given_reason(reason, "the row")
    with _opened(context) as (operator, _):
        rows = operator.recall(message_id, by, why)
    if not rows:
        raise NotDone(
            f"{message_id} is not here, has gone, or may have gone; see `hongyan outbox show"
            f" {message_id}`, and use `hongyan recall` for what is in Kafka"
        )
    _tell({"id": message_id, "recalled": rows}, f"{message_id} is taken back", as_json)


@contextmanager
def _opened(context: typer.Context) -> Iterator[OpenedOutboxCommand]:
    settings = settings_of(context)
    from hongyan_client.outbox.operator_orders import OutboxOperator
    from producer.relay.opening import open_outbox

    opened = open_outbox(settings)
    try:
        yield OpenedOutboxCommand(OutboxOperator(opened.store, opened.tables), opened.rows)
    finally:
        opened.engine.dispose()


def _tell(fields: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print_json(fields)
    else:
        out().print(line, highlight=False)


def _show_backlog(backlog: OutboxBacklog, beats: Sequence[RelayHeartbeat], now: int) -> None:
    oldest = f", the oldest for {backlog.oldest_ms / 1_000:,.0f} s" if backlog.pending else ""
    out().print(
        f"{backlog.pending:,} not in Kafka{oldest}; {backlog.parked:,} parked", highlight=False
    )
    for one in beats:
        age_ms = now - one.heartbeat_at
        lost = f"lost: silent for {age_ms / 1_000:,.0f} s"
        state = lost if one.lost_at(now) else one.state
        out().print(f"relay {one.name}: {state}, {one.published:,} published", highlight=False)


def _show_rows(rows: Sequence[OutboxRow]) -> None:
    if not rows:
        return
    table = listing(_TITLES)
    for one in rows:
        table.add_row(
            one.message_id,
            one.state,
            f"{one.attempt}/{one.max_attempts}",
            one.topic,
            local_time(one.created_at),
            local_time(one.next_at) if one.next_at is not None else "-",
            one.last_error or "",
        )
    out().print(table)
