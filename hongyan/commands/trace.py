"""`hongyan trace`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.terminal import PROBLEMS, complain, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tracing.timeline import DeliveryStory, Moment, Story

HELP = explained(
    "Tell what became of a message, receiver by receiver: by its id, a delivery key, your own "
    "biz_id, or a record's place in Kafka. Exits 1 when nothing is known of it.",
    "hongyan trace 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan trace order-1001",
    "hongyan trace hongyan.dispatch.sms.notice/3/1745 --json",
)
_STYLES = {
    "SENT": "green",
    "DELIVERED": "green",
    "IN_FLIGHT": "cyan",
    "RETRY": "yellow",
    "UNKNOWN": "bold yellow",
    "PARKED": "bold yellow",
}
_TOLD = {
    "created": "created by the sender",
    "received": "read from Kafka",
    "claimed": "claimed in the ledger",
    "called": "provider called",
    "answered": "provider answered",
    "settled": "settled",
    "expired": "past its time to live",
    "dropped": "dropped",
    "recalled": "taken back by the provider",
    "held": "held back",
    "behind": "waits behind an earlier one of its key",
    "duplicate": "came again; already known",
    "conflict": "came again with another body",
    "fenced": "outcome refused: the claim had passed on",
    "owner_dead": "its worker died",
    "resolved": "what was in doubt is decided",
    "receipt": "the provider's receipt",
    "receipt_contradicted": "a later receipt says otherwise; the first one stays",
    "dead_letter": "put into the dead letters",
    "handed_over": "handed over",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trace", help=HELP, short_help="Tell what became of a message.")(trace)


def trace(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="Id, delivery key, biz_id or place.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    """See HELP."""
    settings = settings_of(context)
    from hongyan.database import existing
    from tracing.timeline import find

    stories = find(existing(settings), name)
    if as_json:
        print_json(stories)
    for story in [] if as_json else stories:
        show(story)
    if not stories:
        complain(f"nothing is known of {name!r}; a message shows up once a worker has read it")
        raise typer.Exit(PROBLEMS)


def show(story: Story) -> None:
    """Print one message's story."""
    from rich.padding import Padding
    from rich.text import Text

    parts = [story.lane, story.biz_id or ""]
    out().print(Text.assemble((story.message_id, "bold"), *(f"  {p}" for p in parts if p)))
    for delivery in story.deliveries:
        out().print(Padding(_headline(delivery), (0, 0, 0, 2), expand=False))
        out().print(Padding(_table(delivery.moments), (0, 0, 0, 4), expand=False))
        out().print()


def _headline(delivery: DeliveryStory) -> Text:
    from rich.text import Text

    from idempotency.lines import ASLEEP_AT

    row = delivery.row
    line = Text.assemble(("→ ", "dim"), delivery.receiver or "receiver unknown")
    if row is not None:
        line.append(f"  {row.state}", _STYLES.get(row.state, "red"))
        if row.reason:
            line.append(f" ({row.reason})")
        if row.provider_id:
            line.append(f"  provider id {row.provider_id}")
        if row.next_at == ASLEEP_AT and row.state == "RETRY":
            line.append("  next when its turn in line comes")
        elif row.next_at and row.state == "RETRY":
            line.append(f"  next at {_clock(row.next_at)}")
    elif delivery.delivery_key:
        line.append("  no ledger row", "dim")
    if delivery.delivery_key:
        line.append(f"  {delivery.delivery_key}", "dim")
    return line


def _table(moments: list[Moment]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    start = moments[0].at if moments else 0
    for moment in moments:
        table.add_row(
            Text(_clock(moment.at), "dim"),
            Text(f"+{moment.at - start:,} ms", "dim"),
            Text(_TOLD.get(moment.what, moment.what)),
            _details(moment),
        )
    return table


def _details(moment: Moment) -> Text:
    from rich.text import Text

    line = Text()
    if moment.state:
        line.append(f"{moment.state} ", _STYLES.get(moment.state, "red"))
    attempt = f"attempt {moment.attempt}" if moment.what == "called" else ""
    account = f"account {moment.account}" if moment.what == "called" and moment.account else ""
    worker = f"by {moment.worker}" if moment.what in ("received", "claimed") else ""
    origin = moment.origin if moment.what in ("received", "dead_letter") else ""
    texts = (attempt, account, moment.reason, moment.detail, origin, worker)
    line.append("  ".join(text for text in texts if text))
    return line


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000).astimezone().isoformat(" ", "milliseconds")[:23]
