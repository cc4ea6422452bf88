"""`hongyan trace`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.flags import MOST_ROWS, age_ms
from hongyan.tables import age, local_time
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from backends.settings import Settings
    from backends.sql.database import Database
    from hongyan.traces.search import Found, SearchWindow
    from policy.schema import Policy
    from tracing.stories import SearchTerms
    from tracing.timeline import DeliveryStory, LedgerRow, Moment, Story

HELP = explained(
    "Show what became of a message, receiver by receiver: by its id, a delivery key, your own "
    "biz_id, or a record's place in Kafka; without one, the newest of a receiver or template. Of a biz_id "
    "the newest messages come first, 50 at most; --since and --limit choose others. Looks into the ledger, "
    "its archive, the trace and the rebuilt traces, and names the places of each part. With --wait it "
    "first waits until every delivery of it has ended. Exits 1 when nothing is known of it, or if the wait "
    "was too short.",
    "hongyan trace 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan trace order-1001 --wait 30",
    "hongyan trace customer-42 --since 24h --limit 10 --brief",
    "hongyan trace --receiver +8613800000001 --since 7d",
    "hongyan trace hongyan.dispatch.sms.notice/3/1745 --json",
)
_SINCE_MS: Final = 86_400_000
"""A search without a name and without --since goes back this far."""
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
    "accepted": "acknowledged by Kafka",
    "received": "read from Kafka",
    "claimed": "claimed in the ledger",
    "called": "provider called",
    "answered": "provider answered",
    "attempted": "another call follows",
    "taken": "taken to be sent again",
    "found": "found lost, entered to be sent",
    "recall_asked": "recall asked for",
    "removed": "removed by Kafka before it was read",
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
    "appended": "appended to Kafka",
}
_NAMED = frozenset({"received", "claimed", "resolved", "taken"})
"""Moments whose worker is always named."""
_PLACED = frozenset({"accepted", "appended", "received", "dead_letter"})
"""Moments that show a record's place."""
_UNANSWERED = frozenset({"timed_out", "lost", "not_started"})
_PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")


def trace(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="[ID]", help="Id, delivery key, biz_id or place.")
    ] = "",
    receiver: Annotated[
        str,
        typer.Option("--receiver", metavar="TEXT", help="A receiver, typed in full."),
    ] = "",
    template: Annotated[
        str, typer.Option("--template", metavar="NAME", help="A template's name.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="AGO",
            help="Messages from 90m, 6h, 7d ago or later; without an ID the default is 24h.",
        ),
    ] = "",
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="Most messages."),
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
    _check(name, searched=bool(receiver or template), waits=bool(wait))
    settings = settings_of(context)
    from hongyan.database import existing
    from hongyan.policy_source import policy_in_force
    from hongyan.trace_wait import ended
    from hongyan.traces.search import SearchWindow
    from hongyan.traces.selection import terms_of

    terms = None if name else terms_of(settings, receiver, template)
    database = existing(settings)
    window = SearchWindow(_since(since, searches=terms is not None), limit)
    asked, policy = name, None
    if wait:
        asked, policy = _waited_for(settings, database, name), policy_in_force(settings)
        _await_end(database, asked, window, wait, policy)
    found = _found(settings, database, asked, terms, window)
    stories = _narrowed(found.stories, receiver, template) if name else found.stories
    _show_all(stories, brief=brief, as_json=as_json)
    _remark(found, stories, searched=terms is not None)
    if not stories:
        raise _nothing(name or receiver or template, since)
    _note_left_out(database, name, window.since, stories)
    if policy is not None and not ended(stories, policy):
        raise _unended(wait)


def _check(name: str, *, searched: bool, waits: bool) -> None:
    """Raises WrongUsage for options that name nothing or do not go together."""
    if not (name or searched):
        raise WrongUsage("give an ID, --receiver or --template")
    if waits and not name:
        raise WrongUsage("--wait goes with an ID")


def _waited_for(settings: Settings, database: Database, name: str) -> str:
    """Returns the id of the record whose place is named: rows and events have no index by place. Returns
    the name itself for any other, and for a record that has no id. Exits 1 if it cannot be read."""
    from tracing.stories import find

    place = place_of(name)
    if place is None or find(database, name, limit=1):
        return name
    return _id_at(settings, place) or name


def _await_end(
    database: Database, name: str, window: SearchWindow, wait_s: float, policy: Policy
) -> None:
    from hongyan.trace_wait import await_end
    from tracing.stories import find

    look = partial(find, database, name, since=window.since, limit=window.limit)
    await_end(look, wait_s, policy)


def _unended(wait_s: float) -> typer.Exit:
    """Complains that the time was over first. Returns the command's end."""
    complain(f"not ended within {wait_s:g} s; `hongyan status` shows what it waits for")
    return typer.Exit(PROBLEMS)


def _show_all(stories: Sequence[Story], *, brief: bool, as_json: bool) -> None:
    if as_json:
        print_json(stories)
        return
    for story in stories:
        show(story, brief=brief)


def _nothing(name: str, since: str) -> typer.Exit:
    """Complains that nothing is known of it. Returns the command's end."""
    later = f" since {since}" if since else ""
    complain(f"nothing is known of {name!r}{later}; a message shows up once a worker has read it")
    return typer.Exit(PROBLEMS)


def _since(since: str, *, searches: bool) -> int:
    """Returns the start of the window, epoch milliseconds."""
    ago = age_ms("--since", since) or (_SINCE_MS if searches else None)
    return 0 if ago is None else time.time_ns() // 1_000_000 - ago


def _found(
    settings: Settings,
    database: Database,
    name: str,
    terms: SearchTerms | None,
    window: SearchWindow,
) -> Found:
    from hongyan.traces.search import TraceSearch

    search = TraceSearch(settings, database)
    if terms is not None:
        return search.holding(terms, window)
    found = search.named(name, window)
    if not found.stories and (place := place_of(name)):
        return search.named(_id_at(settings, place), window)
    return found


def _narrowed(stories: list[Story], receiver: str, template: str) -> list[Story]:
    from hongyan.traces.selection import of_receiver, of_template

    kept = of_receiver(stories, receiver) if receiver else stories
    return of_template(kept, template) if template else kept


def _remark(found: Found, stories: Sequence[Story], *, searched: bool) -> None:
    """Prints the age of the rebuilt traces, and the places that gave nothing: after a search each, else
    only where the live places knew too little. Damage of the archive is always printed,
    since rows may be missing."""
    rebuilt = any("rebuilt" in one.sources for story in stories for one in story.deliveries)
    if (rebuilt or searched) and found.rebuilt_until is not None:
        ago = age(time.time_ns() // 1_000_000 - found.rebuilt_until)
        err().print(f"the rebuilt traces end at {local_time(found.rebuilt_until)}, {ago} ago")
    if searched or not stories:
        for remark in found.remarks:
            err().print(remark, markup=False)
    if found.damage:
        err().print(found.damage, markup=False)


def _note_left_out(database: Database, name: str, since: int, stories: Sequence[Story]) -> None:
    """Prints a remark if the biz_id has more messages than are shown."""
    from tracing.stories import messages_of

    if not name or stories[0].biz_id != name or stories[0].message_id == name:
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
        for line in _origins(delivery):
            out().print(Padding(Text(line, "dim"), (0, 0, 0, 4), expand=False))
        table = _table(delivery.moments, _policy_of(delivery))
        out().print(Padding(table, (0, 0, 0, 4), expand=False))
        out().print()


def _headline(delivery: DeliveryStory) -> Text:
    from rich.text import Text

    row = delivery.row
    line = Text.assemble(("→ ", "dim"), delivery.receiver or "receiver unknown")
    if row is not None:
        line.append(f"  {row.state}", _STYLES.get(row.state, "red"))
        if row.reason:
            line.append(f" ({row.reason})")
        if row.provider_id:
            line.append(f"  provider id {row.provider_id}")
        line.append(_next(row))
    elif delivery.delivery_key:
        if delivery.state:
            line.append(f"  {delivery.state}", _STYLES.get(delivery.state, "red"))
        line.append("  no ledger row", "dim")
    if delivery.delivery_key:
        line.append(f"  {delivery.delivery_key}", "dim")
    if version := _policy_of(delivery):
        line.append(f"  policy {version}", "dim")
    return line


def _next(row: LedgerRow) -> str:
    """Returns the time at which a waiting delivery goes on; empty if it does not wait."""
    from idempotency.claims.rows import GIVEN_BACK
    from idempotency.lines import ASLEEP_AT

    if row.state != "RETRY" or not row.next_at:
        return ""
    if row.next_at == ASLEEP_AT:
        return "  next when its turn in line comes"
    if row.reason == GIVEN_BACK:
        return f"  next when its Kafka record is read again, at {_clock(row.next_at)} at the latest"
    return f"  next at {_clock(row.next_at)}"


def _origins(delivery: DeliveryStory) -> list[str]:
    """Returns lines on the places of its parts, unless the ledger and the live trace have them all, and on
    stages that are missing."""
    places = [one for one in delivery.sources if one not in ("ledger", "trace")]
    lines = [f"from {', '.join(delivery.sources)}"] if places else []
    return [*lines, *(f"missing: {one}" for one in delivery.missing)]


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
    of_call = moment.what in ("called", "owner_dead", "taken")
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
        moment.origin if moment.what in _PLACED else "",
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
