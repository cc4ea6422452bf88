"""`hongyan dead`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.flags import age_ms
from hongyan.replay_run import ReplayRun
from hongyan.tables import listing, local_time
from hongyan.terminal import DONE, PROBLEMS, complain, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.dead_letters.rows import IndexedLetter
    from sending.dead_letters.reader import DeadLetter, DeadLetterFilter
    from sending.dead_letters.replay import Replayer

app = typer.Typer(name="dead", help="Records that could not be sent at all.", no_args_is_help=True)

LIST = explained(
    "List the dead letters, newest first, with reason and origin. They come from the ledger's index, "
    "which a recovery keeps: quickly, and without Kafka. Without an index the topic itself is read.",
    "hongyan dead list",
    "hongyan dead list --reason-code unknown_account --lane sms.notice --since 24h --json",
)
SHOW = explained(
    "Show one dead letter: its headers, and its body with receivers and contents masked.",
    "hongyan dead show hongyan.dispatch.sms.notice/3/1745",
)
REPLAY = explained(
    "Send dead letters again, unchanged, to the topic they came from. Without --yes it only shows its "
    "plan. A letter that was replayed before is skipped unless --again is given. Sends all matching "
    "letters, or --limit of them; exits 1 if some are left, failed or cannot be sent.",
    "hongyan dead replay hongyan.dispatch.sms.notice/3/1745 --yes",
    "hongyan dead replay --reason-code unknown_account --since 2h",
    "hongyan dead replay --reason-code wrong_topic --to-lane sms.notice --yes",
)
_GOOD: Final = ("replayed", "would_replay", "replayed_before")
_REASON = Annotated[
    str, typer.Option("--reason-code", metavar="CODE", help="Only with this reason.")
]
_OLD_REASON = Annotated[str, typer.Option("--reason", hidden=True)]
_LANE = Annotated[str, typer.Option("--lane", metavar="LANE", help="Only from this lane.")]
_SINCE = Annotated[str, typer.Option("--since", metavar="AGO", help="Since 30m, 1h30m or 2d ago.")]
_LIMIT = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="N at most.")]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    reason: _REASON = "",
    lane: _LANE = "",
    since: _SINCE = "",
    limit: _LIMIT = 50,
    from_topic: Annotated[
        bool,
        typer.Option("--from-topic", help="Read the topic, not the index; slower.", metavar=""),
    ] = False,
    as_json: _JSON = False,
    old_reason: _OLD_REASON = "",
) -> None:
    settings = settings_of(context)
    wanted = _wanted(reason=reason or old_reason, lane=lane, since=since)
    if not from_topic and _listed_from_index(settings, wanted, limit, as_json=as_json):
        return
    letters = _found(settings, wanted, limit)
    if as_json:
        print_json([_told(letter) for letter in letters])
    else:
        _table(letters)


def _listed_from_index(
    settings: Settings, wanted: DeadLetterFilter, limit: int, *, as_json: bool
) -> bool:
    """Prints the letters of the index. Returns False if it cannot answer."""
    from hongyan.dead_index import NoIndex, fields_of, indexed

    try:
        found = indexed(settings, wanted, limit)
    except NoIndex as exc:
        complain(f"{exc}; the topic itself is read" if str(exc) else "")
        return False
    complain(found.remark)
    if as_json:
        print_json([fields_of(letter, settings) for letter in found.letters])
    else:
        _index_table(found.letters)
    return True


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    origin: Annotated[str, typer.Argument(metavar="ORIGIN", help="topic/partition/offset.")],
    as_json: _JSON = False,
) -> None:
    letters = _found(settings_of(context), _wanted(origins=[origin]), 1)
    if not letters:
        complain(f"there is no dead letter from {origin!r}; `hongyan dead list` has their origins")
        raise typer.Exit(PROBLEMS)
    (letter,) = letters
    if as_json:
        print_json(_told(letter) | {"headers": _headers(letter), "body": letter.body()})
        return
    for name, value in _told(letter).items():
        if shown := _in_words(name, value):
            out().print(f"{name:<11} {shown}", markup=False)
    for name, value in _headers(letter):
        out().print(f"  {name}: {value}", markup=False)
    out().print(letter.body(), markup=False)


@app.command("replay", help=REPLAY)
def replay(
    context: typer.Context,
    origins: Annotated[
        list[str] | None,
        typer.Argument(metavar="ORIGIN...", help="topic/partition/offset.", show_default=False),
    ] = None,
    reason: _REASON = "",
    lane: _LANE = "",
    since: _SINCE = "",
    to_lane: Annotated[
        str, typer.Option("--to-lane", metavar="LANE", help="Send to this lane instead.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Include letters replayed before.", metavar="")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send them; else show the plan.", metavar="")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="N at most; default: all that match."),
    ] = None,
    as_json: _JSON = False,
    old_reason: _OLD_REASON = "",
) -> None:
    reason = reason or old_reason
    if not (origins or reason or lane or since):
        raise WrongUsage("name the letters: by ORIGIN, --reason-code, --lane or --since")
    settings = settings_of(context)
    wanted = _wanted(origins=origins or (), reason=reason, lane=lane, since=since)
    missing = set(origins or ())
    with _replayer(settings, _topic_of(settings, to_lane)) as replayer:
        send = partial(replayer.run, again=again) if yes else None
        plan = partial(replayer.plan, again=again)
        run = ReplayRun(plan, send, limit=limit, as_json=as_json)
        run.through(_matching(settings, wanted, missing))
    for origin in sorted(missing):
        complain(f"there is no dead letter from {origin!r}")
    bad = run.fates.total() - sum(run.fates[fate] for fate in _GOOD)
    raise typer.Exit(PROBLEMS if missing or bad or run.left else DONE)


@contextmanager
def _replayer(settings: Settings, target: str) -> Iterator[Replayer]:
    from backends.kafka import clients as kafka
    from idempotency.sql_ledger import open_ledger
    from sending.accepted_trace import accepted_trace
    from sending.dead_letters.replay import Replayer

    with closing(open_ledger(settings)) as ledger, accepted_trace(settings, "replay") as trace:
        producer = kafka.producer(settings.kafka, client_id="hongyan-replay")
        yield Replayer(producer, ledger.replays(), target=target, on_sent=trace.replayed)


def _matching(
    settings: Settings, wanted: DeadLetterFilter, missing: set[str]
) -> Iterator[DeadLetter]:
    """Yields the matching letters in topic order; removes each origin found from `missing`."""
    for letter in _letters(settings, wanted.since_ms):
        if wanted.fits(letter):
            missing.discard(letter.origin)
            yield letter


def _found(settings: Settings, wanted: DeadLetterFilter, limit: int) -> list[DeadLetter]:
    from sending.dead_letters.reader import newest

    return newest(_letters(settings, wanted.since_ms), wanted, limit)


def _letters(settings: Settings, since_ms: int) -> Iterator[DeadLetter]:
    from backends.kafka.clients import wait_for_broker
    from backends.kafka.topic_reader import read_topic
    from message.vocabulary import dead_letter_topic
    from sending.dead_letters.reader import letter_of

    wait_for_broker(settings.kafka)
    prefix = settings.kafka.topic_prefix
    for message in read_topic(settings.kafka, dead_letter_topic(prefix), since_ms):
        yield letter_of(message, prefix)


def _wanted(
    *, origins: Any = (), reason: str = "", lane: str = "", since: str = ""
) -> DeadLetterFilter:
    from message.vocabulary import lane_named
    from sending.dead_letters.reader import DeadLetterFilter

    if lane and lane_named(lane) is None:
        raise WrongUsage(f"--lane {lane!r}: there is no such lane")
    ago = age_ms("--since", since)
    since_ms = 0 if ago is None else time.time_ns() // 1_000_000 - ago
    return DeadLetterFilter(origins=frozenset(origins), reason=reason, lane=lane, since_ms=since_ms)


def _topic_of(settings: Settings, lane: str) -> str:
    from message.vocabulary import lane_named

    if not lane:
        return ""
    named = lane_named(lane)
    if named is None:
        raise WrongUsage(f"--to-lane {lane!r}: there is no such lane")
    return named.topic(settings.kafka.topic_prefix)


def _told(letter: DeadLetter) -> dict[str, Any]:
    stub = letter.stub
    return {
        "at": letter.at,
        "reason": letter.reason,
        "detail": letter.detail,
        "origin": letter.origin,
        "lane": letter.lane,
        "id": letter.message_id,
        "receivers": letter.receivers(),
        "bytes": stub.value_bytes if stub else letter.truncated or len(letter.value or b""),
        "truncated": bool(letter.truncated),
        "stub": {f: getattr(stub, f) for f in stub.__struct_fields__} if stub else None,
        "place": letter.place,
    }


def _in_words(name: str, value: Any) -> str:
    """Returns a field for a person; empty for one that says nothing."""
    match value:
        case int() if name == "at":
            return local_time(value)
        case True:
            return "yes"
        case None | False:
            return ""
        case list():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{key}={one}" for key, one in value.items())
        case _:
            return str(value)


def _headers(letter: DeadLetter) -> list[tuple[str, str]]:
    """Returns the headers; receivers in those that are not ours are masked."""
    from tracing.masks import impersonal

    texts = ((name, (value or b"").decode("utf-8", "replace")) for name, value in letter.headers)
    return [(name, t if name.startswith("hongyan-") else impersonal(t)) for name, t in texts]


def _index_table(letters: list[IndexedLetter]) -> None:
    from rich.text import Text

    if not letters:
        out().print("no dead letters")
        return
    titles = ("AT", "REASON", "ORIGIN", "STATE", "ID", "BYTES", "DETAIL")
    table = listing(titles, right=("BYTES",), whole=titles[:4])
    for one in letters:
        rest = (one.state, one.message_id, f"{one.size:,}", one.detail)
        table.add_row(*map(Text, (local_time(one.at), one.reason, one.origin, *rest)))
    out().print(table)


def _table(letters: list[DeadLetter]) -> None:
    from rich.text import Text

    if not letters:
        out().print("no dead letters")
        return
    titles = ("AT", "REASON", "ORIGIN", "ID", "RECEIVERS", "DETAIL")
    table = listing(titles, whole=titles[:3])
    for letter in letters:
        kept = f"(stub of {letter.stub.value_bytes:,} bytes) " if letter.stub else ""
        rest = (letter.message_id, ", ".join(letter.receivers()), kept + letter.detail)
        table.add_row(*map(Text, (local_time(letter.at), letter.reason, letter.origin, *rest)))
    out().print(table)
