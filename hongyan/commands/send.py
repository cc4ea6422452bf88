"""`hongyan send`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from backends.durations import LONGEST_S
from hongyan.errors import WrongUsage
from hongyan.flags import body_fields, lane_fields, optional, pairs
from hongyan.flags import seconds as seconds_of
from hongyan.terminal import DONE, PROBLEMS, explained, print_json, settings_of
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from backends.settings import Settings
    from hongyan.enqueue import (
        Check,
        EnqueueOutcome,
        NotificationSender,
        Ready,
        Render,
    )
    from message.delivery import Rendered
    from message.envelope import Notification
    from policy.templates.templates import Templates

HELP = explained(
    "Hand notifications to Kafka and wait for its acknowledgement: one from flags, or every line of a "
    "file. A bad line is reported by its number and not sent; the good ones go. Missing id and "
    "created_at are filled in. Receivers, content, template and account are checked as a worker checks "
    "them, with the accounts of hongyan.toml and with templates.toml. With --wait it also waits until each "
    "delivery has ended. Exits 1 when anything was not sent or, with --wait, did not arrive.",
    "hongyan send --lane sms.notice --to +8613800000001 --template SMS_1",
    'hongyan send --lane push.notice --to u1 --content \'{"text":"hi"}\' --biz-id o-1',
    'hongyan send --lane wecom.notice --to group:ops --content \'{"text":"disk full"}\'',
    "hongyan send --lane sms.notice --to +8613800000001 --template SMS_1 --wait 30",
    "hongyan send --file examples/notifications.jsonl",
    "generate | hongyan send --file - --json",
    "hongyan send --file new.jsonl --check",
)
_WAIT_S: Final = 60.0
_KEPT: Final = 1_000
"""Notifications that `--json` names; with `--wait` it names all."""


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
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait",
            metavar="[SECONDS]",
            help="Wait until each delivery has ended; 60 s by default.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(parser=seconds(0.1), metavar="TIME", help="Wait for acknowledgements.")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    flags: dict[str, Any] = {"--to": to, "--template": template, "--param": param}
    flags |= {"--content": content, "--biz-id": biz_id, "--ttl": ttl, "--account": account}
    flags |= {"--ordering-key": ordering_key, "--id": message_id, "--resend-of": resend_of}
    flags |= {"--attribute": attribute}
    _check_source(file, lane, [name for name, value in flags.items() if value is not None])
    fields: dict[str, Any] = {}
    if file is None:
        ttl_ms, attributes = int(ttl * 1_000) if ttl else None, pairs("--attribute", attribute)
        fields = optional(id=message_id, biz_id=biz_id, receivers=to, account=account)
        fields |= optional(ttl_ms=ttl_ms, ordering_key=ordering_key, resend_of=resend_of)
        fields |= optional(attributes=attributes)
        fields |= lane_fields(lane or "") | body_fields(template, param, content)
    order = _Order(settings_of(context), file, fields, check, timeout, _wait_of(wait, check=check))
    arrived = (_sent if order.wait_s is None else _awaited)(order, as_json=as_json)
    raise typer.Exit(DONE if arrived else PROBLEMS)


def _wait_of(wait: str | None, *, check: bool) -> float | None:
    """Returns the seconds to wait; None without `--wait`. Raises WrongUsage."""
    if wait is None:
        return None
    if check:
        raise WrongUsage("--wait goes with a send, and --check sends nothing")
    return seconds_of("--wait", wait) if wait else _WAIT_S


class _Order(NamedTuple):
    """One call of the command."""

    settings: Settings
    file: Path | None
    fields: dict[str, Any]
    """The notification of the flags, where there is no file."""
    check: bool
    timeout_s: float
    wait_s: float | None


def _sent(order: _Order, *, as_json: bool) -> bool:
    """Sends or checks, and prints it. Returns whether all was good."""
    from hongyan.submission.output import show_sent

    outcome = _outcome(order, [])
    if as_json:
        print_json(outcome)
    else:
        show_sent(outcome, check=order.check)
    return outcome.ok


def _awaited(order: _Order, *, as_json: bool) -> bool:
    """Sends, waits for the ends, and prints both. Returns whether all arrived."""
    import msgspec

    from hongyan.database import existing
    from hongyan.policy_source import policy_in_force
    from hongyan.submission.outcome_wait import LedgerNeeded, OutcomeWait
    from hongyan.submission.output import show_ends, show_sent
    from idempotency.lookups import Queries

    timeout_s = order.wait_s or _WAIT_S
    with closing(existing(order.settings)) as database:
        queries = Queries(database)
        queries.by_keys([""])  # raises before anything is sent
        outcome = _outcome(order, [LedgerNeeded(policy_in_force(order.settings))])
        if not as_json:
            show_sent(outcome, check=False)
        keys = [one.delivery_key for sent in outcome.notifications for one in sent.deliveries]
        wait = OutcomeWait(queries.by_keys, keys)
        wait.run(timeout_s)
    ends = wait.ends(outcome.notifications)
    if as_json:
        deliveries = [msgspec.to_builtins(end) | {"arrived": end.arrived} for end in ends]
        print_json(msgspec.to_builtins(outcome) | {"deliveries": deliveries})
    else:
        show_ends(ends, timeout_s, wait.failure)
    return outcome.ok and all(end.arrived for end in ends)


def _outcome(order: _Order, checks: list[Check]) -> EnqueueOutcome:
    """Sends the notifications of the file, or of the fields; only checks them for `--check`."""
    from hongyan.enqueue import EnqueueOutcome, NotificationSender
    from hongyan.submission.notification_file import checked_lines
    from hongyan.template_source import templates_now
    from sending.accepted_trace import accepted_trace
    from sending.receiver_check import ReceiverCheck
    from sending.template_check import TemplateCheck

    settings = order.settings
    templates, outcome = templates_now(settings), EnqueueOutcome()
    render = TemplateCheck(templates)
    check = _all([*checks, ReceiverCheck(settings.accounts)])
    if order.file is not None:
        ready = checked_lines(order.file, outcome.bad, render, check)
    else:
        ready = _one(order.fields, templates, render, check)
    if order.check:
        outcome.sent = sum(1 for _ in ready)
    else:
        keep = _KEPT if order.wait_s is None else float("inf")
        with accepted_trace(settings, "send") as trace:
            sender = NotificationSender(settings.kafka, outcome, keep, trace.acknowledged)
            _send(sender, ready, order.timeout_s)
    outcome.warnings += render.warnings
    return outcome


def _all(checks: list[Check]) -> Check:
    def check(notification: Notification, rendered: Rendered | None) -> None:
        for one in checks:
            one(notification, rendered)

    return check


def _check_source(file: Path | None, lane: str | None, flags: Sequence[str]) -> None:
    """Raises WrongUsage for anything but one of the two, for a file that is not there, and for flags of a
    notification beside a file."""
    if (file is None) == (lane is None):
        raise WrongUsage("give either --file, or --lane with --to and what to send")
    if file is not None and flags:
        raise WrongUsage(
            f"{', '.join(flags)}: not with --file, whose lines have fields of their own"
        )
    if file is not None and str(file) != "-" and (file.is_dir() or not file.exists()):
        what = "it is a folder" if file.is_dir() else "no such file"
        raise WrongUsage(f"{file}: {what}; give one of JSON lines, or - for standard input")


def _one(
    fields: dict[str, Any], templates: Templates, render: Render, check: Check
) -> Iterator[Ready]:
    """The notification that the flags describe."""
    from hongyan.enqueue import prepared
    from policy.templates.parameters import typed

    now_ms = time.time_ns() // 1_000_000
    return iter([prepared(typed(fields, templates), now_ms, render, check)])


def _send(sender: NotificationSender, ready: Iterable[Ready], timeout_s: float) -> None:
    try:
        for one in ready:
            sender.send(one)
    finally:  # after an interrupt, too: wait for the acknowledgements and count them
        sender.finish(timeout_s)
