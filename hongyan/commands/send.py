"""`hongyan send`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from backends.durations import LONGEST_S
from hongyan.errors import WrongUsage
from hongyan.flags import body_fields, lane_fields, optional, pairs
from hongyan.terminal import (
    DONE,
    PROBLEMS,
    complain,
    err,
    explained,
    out,
    print_json,
    settings_of,
)
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from backends.settings import Settings
    from hongyan.enqueue import BadLine, Check, EnqueueOutcome, NotificationSender, Ready
    from policy.templates.templates import Templates

HELP = explained(
    "Hand notifications to Kafka and wait for its acknowledgement: one from flags, or every line of a "
    "file. A bad line is reported by its number and not sent; the good ones go. Missing id and "
    "created_at are filled in. A template of templates.toml is tried with its parameters first. A person "
    "or a group (group:NAME) that no account of hongyan.toml reaches gets nothing. Exits 1 when anything "
    "was not sent.",
    "hongyan send --lane sms.notice --to +8613800000001 --template SMS_1",
    'hongyan send --lane push.notice --to u1 --content \'{"text":"hi"}\' --biz-id o-1',
    'hongyan send --lane wecom.notice --to group:ops --content \'{"text":"disk full"}\'',
    "hongyan send --file examples/notifications.jsonl",
    "generate | hongyan send --file - --json",
    "hongyan send --file new.jsonl --check",
)
_SHOWN = 20


def send(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="JSON lines; - is standard input.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check, send nothing.", metavar="")
    ] = False,
    lane: Annotated[str | None, typer.Option(metavar="CHANNEL.KIND", help="The lane.")] = None,
    to: Annotated[
        list[str] | None, typer.Option(metavar="RECEIVER", help="Receiver; repeat it.")
    ] = None,
    template: Annotated[str | None, typer.Option(metavar="ID", help="A template.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Parameter; repeat it.")
    ] = None,
    content: Annotated[str | None, typer.Option(metavar="JSON", help="Inline content.")] = None,
    biz_id: Annotated[
        str | None, typer.Option("--biz-id", metavar="ID", help="Your own id, such as an order's.")
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(parser=seconds(0.001, LONGEST_S), metavar="TIME", help="Time to live: 5m."),
    ] = None,
    ordering_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Same key, same order.")
    ] = None,
    account: Annotated[
        str | None, typer.Option(metavar="NAME", help="Send through this account only.")
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The notification's id; default: a new one."),
    ] = None,
    resend_of: Annotated[str | None, typer.Option(metavar="ID", help="Id of the original.")] = None,
    attribute: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    timeout: Annotated[
        float, typer.Option(parser=seconds(0.1), metavar="TIME", help="Wait for acknowledgements.")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    settings = settings_of(context)
    _check_source(file, lane)
    fields: dict[str, Any] = {}
    if file is None:
        fields = optional(
            id=message_id,
            biz_id=biz_id,
            receivers=to,
            account=account,
            ttl_ms=int(ttl * 1_000) if ttl else None,
            ordering_key=ordering_key,
            resend_of=resend_of,
            attributes=pairs("--attribute", attribute),
        )
        fields |= lane_fields(lane or "") | body_fields(template, param, content)
    outcome = _outcome(settings, file, fields, None if check else timeout)
    _report(outcome, check=check, as_json=as_json)
    raise typer.Exit(DONE if outcome.ok else PROBLEMS)


def _outcome(
    settings: Settings, file: Path | None, fields: dict[str, Any], timeout_s: float | None
) -> EnqueueOutcome:
    """Sends the notifications of the file, or of the fields. `timeout_s` None: only checks them."""
    from hongyan.enqueue import EnqueueOutcome, NotificationSender
    from hongyan.reach_check import ReachCheck
    from policy.templates.loading import load_for

    templates, reach, outcome = load_for(settings), ReachCheck(settings.accounts), EnqueueOutcome()
    if file is not None:
        ready = _with_progress(file, outcome.bad, templates, reach)
    else:
        ready = _one(fields, templates, reach)
    if timeout_s is None:
        outcome.sent = sum(1 for _ in ready)
    else:
        _send(NotificationSender(settings.kafka, outcome), ready, timeout_s)
    return outcome


def _check_source(file: Path | None, lane: str | None) -> None:
    """Raises WrongUsage for anything but one of the two, and for a file that is not there."""
    if (file is None) == (lane is None):
        raise WrongUsage("give either --file, or --lane with --to and what to send")
    if file is not None and str(file) != "-" and not file.is_file():
        raise WrongUsage(f"{file}: no such file; give one of JSON lines, or - for standard input")


def _one(fields: dict[str, Any], templates: Templates, reach: Check) -> Iterator[Ready]:
    """The notification that the flags describe."""
    from hongyan.enqueue import prepared, typed

    now_ms = time.time_ns() // 1_000_000
    return iter([prepared(typed(fields, templates), now_ms, templates, reach)])


def _send(sender: NotificationSender, ready: Iterable[Ready], timeout_s: float) -> None:
    try:
        for one in ready:
            sender.send(one)
    finally:  # after an interrupt, too: wait for the acknowledgements and count them
        sender.finish(timeout_s)


def _with_progress(
    file: Path, bad: list[BadLine], templates: Templates, reach: Check
) -> Iterator[Ready]:
    """Yields the file's good lines, with a progress bar on a terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from hongyan.enqueue import read_lines

    bar = Progress(
        TextColumn("sending"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]:,} lines"),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with _opened(file) as source, bar:
        size = None if source is sys.stdin.buffer else file.stat().st_size
        task = bar.add_task("", total=size, lines=0)

        def lines() -> Iterator[bytes]:
            for number, line in enumerate(source, 1):
                bar.update(task, advance=len(line), lines=number)
                yield line

        yield from read_lines(lines(), bad, templates=templates, check=reach)


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as exc:
        raise WrongUsage(f"{file}: {exc.strerror}; give a file of JSON lines") from exc
    with source:
        yield source


def _report(outcome: EnqueueOutcome, *, check: bool, as_json: bool) -> None:
    if as_json:
        print_json(outcome)
        return
    _show_problems(outcome)
    if check:
        out().print(f"{outcome.sent:,} good, {len(outcome.bad):,} bad; nothing was sent")
    elif outcome.sent == 1 and outcome.last is not None:
        last = outcome.last
        out().print(f"sent [bold]{last.id}[/]  {last.topic}/{last.partition}/{last.offset}")
    else:
        out().print(f"{outcome.sent:,} sent")


def _show_problems(outcome: EnqueueOutcome) -> None:
    for bad in outcome.bad[:_SHOWN]:
        err().print(f"line {bad.line}: {bad.path}: {bad.detail}", markup=False)
    for failed in outcome.failed[:_SHOWN]:
        err().print(f"{failed.id} to {failed.topic}: {failed.cause}", markup=False)
    if outcome.bad:
        complain(f"{_lines(len(outcome.bad))} bad and not sent")
    if outcome.failed:
        complain(f"{len(outcome.failed):,} not taken by Kafka")
    if outcome.in_doubt:
        complain(
            f"{outcome.in_doubt:,} not acknowledged in time: they may be in Kafka or not; sending "
            "them again under the same ids doubles nothing"
        )


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count:,} lines are"
