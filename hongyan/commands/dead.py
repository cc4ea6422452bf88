"""`hongyan dead`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.terminal import DONE, PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from dispatcher.letters import Letter, Wanted
    from dispatcher.replay import Done

app = typer.Typer(name="dead", help="Records that could not be sent at all.", no_args_is_help=True)

LIST = explained(
    "List the dead letters, the newest first: why each is one, and where it came from.",
    "hongyan dead list",
    "hongyan dead list --reason unknown_account --lane sms.notice --since 24h --json",
)
SHOW = explained(
    "Show one dead letter: its headers, and its body with receivers and contents masked.",
    "hongyan dead show hongyan.dispatch.sms.notice/3/1745",
)
REPLAY = explained(
    "Send dead letters again, as they came, to the topic they came from. Without --yes it only says "
    "what it would do. One that was replayed before is left alone unless --again is given.",
    "hongyan dead replay hongyan.dispatch.sms.notice/3/1745 --yes",
    "hongyan dead replay --reason unknown_account --since 2h",
    "hongyan dead replay --reason wrong_topic --to-lane sms.notice --yes",
)
_UNITS: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_REASON = Annotated[str, typer.Option("--reason", metavar="CODE", help="Only these.")]
_LANE = Annotated[str, typer.Option("--lane", metavar="LANE", help="Only from this lane.")]
_SINCE = Annotated[
    str, typer.Option("--since", metavar="AGE", help="Only younger ones: 30min, 12h, 7d.")
]
_LIMIT = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most.")]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.command("list", help=LIST)
def list_(
    context: typer.Context,
    reason: _REASON = "",
    lane: _LANE = "",
    since: _SINCE = "",
    limit: _LIMIT = 50,
    as_json: _JSON = False,
) -> None:
    """See LIST."""
    settings = settings_of(context)
    letters = _found(settings, _wanted(reason=reason, lane=lane, since=since), limit)
    if as_json:
        print_json([_told(letter) for letter in letters])
    else:
        _table(letters)


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    origin: Annotated[str, typer.Argument(metavar="ORIGIN", help="topic/partition/offset.")],
    as_json: _JSON = False,
) -> None:
    """See SHOW."""
    letters = _found(settings_of(context), _wanted(origins=[origin]), 1)
    if not letters:
        complain(f"there is no dead letter from {origin!r}; `hongyan dead list` has their origins")
        raise typer.Exit(PROBLEMS)
    (letter,) = letters
    if as_json:
        print_json(_told(letter) | {"headers": _headers(letter), "body": letter.body()})
        return
    for name, value in _told(letter).items():
        out().print(f"{name:<11} {value}", markup=False)
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
        str, typer.Option("--to-lane", metavar="LANE", help="Instead of where each came from.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were replayed before.", metavar="")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.", metavar="")] = False,
    limit: _LIMIT = 1_000,
    as_json: _JSON = False,
) -> None:
    """See REPLAY."""
    if not (origins or reason or lane or since):
        raise WrongUsage("name the letters: by ORIGIN, --reason, --lane or --since")
    settings = settings_of(context)
    wanted = _wanted(origins=origins or (), reason=reason, lane=lane, since=since)
    letters = _found(settings, wanted, limit)
    done = _replayed(settings, letters[::-1], _topic_of(settings, to_lane), again=again, yes=yes)
    if as_json:
        print_json([_fate(one) for one in done])
    else:
        for one in done:
            out().print(
                f"{one.fate:<16} {one.letter.origin} → {one.target} {one.why}", markup=False
            )
        if not yes:
            err().print("nothing was sent: this was a dry run; give --yes")
    missing = set(origins or ()) - {letter.origin for letter in letters}
    for origin in sorted(missing):
        complain(f"there is no dead letter from {origin!r}")
    good = {"replayed", "would_replay", "replayed_before"}
    raise typer.Exit(PROBLEMS if missing or any(one.fate not in good for one in done) else DONE)


def _replayed(
    settings: Settings, letters: list[Letter], target: str, *, again: bool, yes: bool
) -> list[Done]:
    from backends import kafka
    from dispatcher.replay import Replayer
    from idempotency.opening import open_ledger

    ledger = open_ledger(settings)
    try:
        producer = kafka.producer(settings.kafka, client_id="hongyan-replay")
        replayer = Replayer(producer, ledger.replays(), target=target)
        return (replayer.run if yes else replayer.plan)(letters, again=again)
    finally:
        ledger.close()


def _found(settings: Settings, wanted: Wanted, limit: int) -> list[Letter]:
    from dispatcher.letters import newest

    return newest(_letters(settings, wanted.since_ms), wanted, limit)


def _letters(settings: Settings, since_ms: int) -> Iterator[Letter]:
    from backends.kafka import wait_for_broker
    from backends.kafka_reading import read_topic
    from dispatcher.letters import letter_of
    from message.vocabulary import dead_letter_topic

    wait_for_broker(settings.kafka)
    prefix = settings.kafka.topic_prefix
    for message in read_topic(settings.kafka, dead_letter_topic(prefix), since_ms):
        yield letter_of(message, prefix)


def _wanted(*, origins: Any = (), reason: str = "", lane: str = "", since: str = "") -> Wanted:
    from dispatcher.letters import Wanted
    from message.vocabulary import lane_named

    if lane and lane_named(lane) is None:
        raise WrongUsage(f"--lane {lane!r}: there is no such lane")
    since_ms = int((time.time() - _seconds(since)) * 1_000) if since else 0
    return Wanted(origins=frozenset(origins), reason=reason, lane=lane, since_ms=since_ms)


def _seconds(age: str) -> float:
    unit = next((u for u in sorted(_UNITS, key=len, reverse=True) if age.endswith(u)), "")
    number = age.removesuffix(unit)
    if not unit or not number.isdigit():
        raise WrongUsage(f"--since {age!r}: write a number and s, min, h or d, such as 12h")
    return int(number) * _UNITS[unit]


def _topic_of(settings: Settings, lane: str) -> str:
    from message.vocabulary import lane_named

    if not lane:
        return ""
    named = lane_named(lane)
    if named is None:
        raise WrongUsage(f"--to-lane {lane!r}: there is no such lane")
    return named.topic(settings.kafka.topic_prefix)


def _told(letter: Letter) -> dict[str, Any]:
    return {
        "at": letter.at,
        "reason": letter.reason,
        "detail": letter.detail,
        "origin": letter.origin,
        "lane": letter.lane,
        "id": letter.message_id,
        "receivers": letter.receivers(),
        "bytes": letter.truncated or len(letter.value or b""),
        "truncated": bool(letter.truncated),
        "place": letter.place,
    }


def _headers(letter: Letter) -> list[tuple[str, str]]:
    return [(name, (value or b"").decode("utf-8", "replace")) for name, value in letter.headers]


def _fate(done: Done) -> dict[str, Any]:
    origin = done.letter.origin
    return {"origin": origin, "target": done.target, "fate": done.fate.value, "why": done.why}


def _table(letters: list[Letter]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not letters:
        out().print("no dead letters")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("AT", "REASON", "ORIGIN", "ID", "RECEIVERS", "DETAIL"):
        table.add_column(title, no_wrap=title in ("AT", "REASON", "ORIGIN"))
    for letter in letters:
        at = datetime.fromtimestamp(letter.at / 1_000).astimezone().isoformat(" ", "seconds")[:19]
        told = (letter.message_id, ", ".join(letter.receivers()), letter.detail)
        table.add_row(*map(Text, (at, letter.reason, letter.origin, *told)))
    out().print(table)
