"""`hongyan trace`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.flags import duration_ms
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from backends.settings import Settings
    from backends.sql.database import Database
    from tracing.timeline import DeliveryStory, Moment, Story

HELP = explained(
    "Show what became of a message, receiver by receiver: by its id, a delivery key, your own "
    "biz_id, or a record's place in Kafka. Of a biz_id the newest messages come first, 50 at most; --since "
    "and --limit choose others. With --wait it first waits until every delivery of it has ended. Exits 1 "
    "when nothing is known of it, or if the wait was too short.",
    "hongyan trace 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan trace order-1001 --wait 30",
    "hongyan trace customer-42 --since 24h --limit 10 --brief",
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
    "timed_out": "no answer in time",
    "lost": "no answer: connection lost",
    "not_started": "the request did not leave",
    "settled": "settled",
    "expired": "past its time to live",
    "dropped": "dropped",
    "parked": "parked before any call",
    "recalled": "taken back by the provider",
    "held": "held back",
    "behind": "waits behind an earlier one of its key",
    "duplicate": "came again; already known",
    "conflict": "came again with another body",
    "fenced": "outcome refused: the claim had passed on",
    "owner_dead": "worker declared dead",
    "resolved": "what was in doubt is decided",
    "receipt": "the provider's receipt",
    "receipt_contradicted": "a later receipt says otherwise; the first one stays",
    "dead_letter": "put into the dead letters",
    "handed_over": "handed over",
}
_NAMED = frozenset({"received", "claimed", "resolved"})
"""Moments whose worker is always named."""
_UNANSWERED = frozenset({"timed_out", "lost", "not_started"})
_PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")


def trace(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="Id, delivery key, biz_id or place.")],
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="AGO", help="Messages of a biz_id from 90m, 6h, 7d ago or later."
        ),
    ] = "",
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Most messages of a biz_id."),
    ] = 50,
    brief: Annotated[
        bool, typer.Option("--brief", help="One line for each delivery.", metavar="")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            parser=seconds(),
            metavar="TIME",
            help="Wait until its deliveries have ended.",
            show_default=False,
        ),
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    settings = settings_of(context)
    from hongyan.database import existing
    from hongyan.trace_wait import await_end, ended
    from tracing.timeline import find

    database = existing(settings)
    since_ms = time.time_ns() // 1_000_000 - duration_ms("--since", since) if since else 0
    look = partial(find, database, name, since=since_ms, limit=limit)
    stories = await_end(look, wait) if wait else look()
    if not stories and (place := place_of(name)):
        stories = find(database, _id_at(settings, place))
    if as_json:
        print_json(stories)
    for story in [] if as_json else stories:
        show(story, brief=brief)
    if not stories:
        later = f" since {since}" if since else ""
        complain(
            f"nothing is known of {name!r}{later}; a message shows up once a worker has read it"
        )
        raise typer.Exit(PROBLEMS)
    _note_left_out(database, name, since_ms, stories)
    if wait and not ended(stories):
        complain(f"not ended within {wait:g} s; `hongyan status` shows what it waits for")
        raise typer.Exit(PROBLEMS)


def _note_left_out(database: Database, name: str, since: int, stories: Sequence[Story]) -> None:
    """Prints a remark if the biz_id has more messages than are shown."""
    from tracing.timeline import messages_of

    if stories[0].biz_id != name or stories[0].message_id == name:
        return
    messages = messages_of(database, name, since)
    if messages > len(stories):
        err().print(
            f"the newest {len(stories):,} of {messages:,} messages are shown: give --limit, or narrow"
            " it by --since"
        )


def show(story: Story, *, brief: bool = False) -> None:
    """Prints one message's story; `brief` leaves its moments out."""
    from rich.padding import Padding
    from rich.text import Text

    parts = [story.lane, story.biz_id or ""]
    out().print(Text.assemble((story.message_id, "bold"), *(f"  {p}" for p in parts if p)))
    if story.copy_of:
        out().print(Text(f"  a copy of {story.copy_of}"))
    for copy in story.copies:
        out().print(Text(f"  copied as {copy}"))
    for delivery in story.deliveries:
        out().print(Padding(_headline(delivery), (0, 0, 0, 2), expand=False))
        if brief:
            continue
        table = _table(delivery.moments, _policy_of(delivery))
        out().print(Padding(table, (0, 0, 0, 4), expand=False))
        out().print()


def _headline(delivery: DeliveryStory) -> Text:
    from rich.text import Text

    from idempotency.claims.rows import GIVEN_BACK
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
        elif row.reason == GIVEN_BACK and row.state == "RETRY":
            line.append("  next when its Kafka record is read again")
        elif row.next_at and row.state == "RETRY":
            line.append(f"  next at {_clock(row.next_at)}")
    elif delivery.delivery_key:
        line.append("  no ledger row", "dim")
    if delivery.delivery_key:
        line.append(f"  {delivery.delivery_key}", "dim")
    if version := _policy_of(delivery):
        line.append(f"  policy {version}", "dim")
    return line


def _policy_of(delivery: DeliveryStory) -> str:
    """Returns the policy version of its last attempt."""
    if delivery.row is not None:
        return delivery.row.policy_version
    return next((m.policy_version for m in reversed(delivery.moments) if m.policy_version), "")


def _table(moments: list[Moment], version: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    start, worker = moments[0].at if moments else 0, ""
    for moment in moments:
        table.add_row(
            Text(_clock(moment.at), "dim"),
            Text(f"+{moment.at - start:,} ms", "dim"),
            Text(_TOLD.get(moment.what, moment.what)),
            _details(moment, worker, version),
        )
        worker = moment.worker or worker
    return table


def _details(moment: Moment, before: str, version: str) -> Text:
    """`before` is the previous moment's worker, `version` the delivery's policy; neither is repeated."""
    from rich.text import Text

    line = Text()
    if moment.state:
        line.append(f"{moment.state} ", _STYLES.get(moment.state, "red"))
    of_call = moment.what in ("called", "owner_dead")
    named = moment.worker != before or moment.what in _NAMED
    by = moment.worker if named and moment.what != "owner_dead" else ""
    other = moment.policy_version if moment.policy_version != version else ""
    texts = (
        moment.worker if moment.what == "owner_dead" else "",
        f"attempt {moment.attempt}" if of_call else "",
        f"account {moment.account}" if of_call and moment.account else "",
        f"after {moment.took_ms:,} ms" if moment.what in _UNANSWERED else "",
        moment.reason,
        moment.detail,
        moment.origin if moment.what in ("received", "dead_letter") else "",
        f"by {by}" if by else "",
        f"policy {other}" if other else "",
    )
    line.append("  ".join(text for text in texts if text))
    return line


def place_of(name: str) -> tuple[str, int, int] | None:
    """Returns (topic, partition, offset) of `topic/partition/offset`; None for another name."""
    found = _PLACE.fullmatch(name)
    return (found["topic"], int(found["partition"]), int(found["offset"])) if found else None


def _id_at(settings: Settings, place: tuple[str, int, int]) -> str:
    """Returns the id of the record there, from Kafka, since ledger and trace have no index by place.
    Exits 1 if the record cannot be read."""
    from backends.kafka.clients import KafkaUnavailable
    from backends.kafka.topic_reader import record_at
    from message.envelope import EnvelopeError, decode

    otherwise = "give the message's id, its delivery key or your biz_id"
    try:
        record = record_at(settings.kafka, *place)
    except KafkaUnavailable as exc:
        complain(f"a place is looked up in Kafka, and {exc}; {otherwise}")
        raise typer.Exit(PROBLEMS) from exc
    if record is None:
        complain(f"Kafka has no record at that place (any more); {otherwise}")
        raise typer.Exit(PROBLEMS)
    try:
        return decode(record.value() or b"").id
    except EnvelopeError:
        return ""  # not a notification: the trace has a dead letter by its place, not by an id


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000).astimezone().isoformat(" ", "milliseconds")[:23]
