"""`hongyan resend`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import age_ms, patterns
from hongyan.resend import options as opt
from hongyan.resend.output import ResendOutput
from hongyan.terminal import complain, err, explained, settings_of

if TYPE_CHECKING:
    from recovery.operator_results import OperatorResult
    from recovery.resend.desk import ResendDesk
    from recovery.resend.selection import Filters

_T = TypeVar("_T")

HELP = explained(
    "Have deliveries sent again that ended badly: by delivery key, message id or business id, or all of a "
    "state. Recovery sends them, and not before quiet hours end. Deliveries that are under way, sent or "
    "recalled are skipped and reported. Other orders: --new-id makes a second copy under an id of its own; "
    "--arrived, --not-arrived and --accept-risk decide by hand about a delivery in doubt; --ask has its "
    "provider asked now; --discard ends "
    "one that still waits. Exits 1 if any was refused, or more match than --limit. "
    "`resend jobs` sends many with a preview, an approval and a bounded rate.",
    "hongyan resend 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan resend --biz-id order-1001 --new-id",
    "hongyan resend --state PARKED --lane 'sms.*' --since 6h --account main --dry-run",
    "hongyan resend --state UNDELIVERED --since 1d --new-id --limit 500",
    "hongyan resend KEY --not-arrived --reason 'the portal shows no such message'",
    "hongyan resend --state PARKED --since 7d --discard --reason 'campaign withdrawn'",
    "hongyan resend jobs --help",
)
_CHUNK: Final = 200
_VERBS: Final = ("arrived", "not_arrived", "accept_risk", "discard")
_STATES: Final = {
    "again": ("PARKED", "REJECTED", "EXPIRED"),
    "arrived": ("UNKNOWN", "PARKED"),
    "not_arrived": ("UNKNOWN", "PARKED"),
    "accept_risk": ("UNKNOWN", "PARKED"),
    "discard": ("PARKED", "RETRY", "UNKNOWN"),
    "ask": ("UNKNOWN",),
    "copy": ("PARKED", "REJECTED", "EXPIRED", "UNDELIVERED", "DROPPED"),
}
"""States that --state may name, by the order."""
_DOUBTED: Final = {
    "arrived": True,
    "not_arrived": True,
    "accept_risk": True,
    "discard": None,
    "ask": None,
}
"""Whether an order takes only rows that an earlier call may have sent; None: all rows."""


def resend(
    context: typer.Context,
    names: opt.Names = None,
    biz: opt.Biz = None,
    state: opt.State = None,
    lane: opt.Lane = None,
    since: opt.Since = None,
    account: opt.Account = "",
    row_reason: opt.RowReason = "",
    limit: opt.Limit = None,
    in_doubt: opt.InDoubt = False,
    new_id: opt.NewId = False,
    job: opt.Job = "",
    arrived: opt.Arrived = False,
    not_arrived: opt.NotArrived = False,
    accept_risk: opt.AcceptRisk = False,
    ask: opt.Ask = False,
    discard: opt.Discard = False,
    sent: opt.Sent = "",
    reason: opt.Reason = "",
    author: opt.Author = "",
    dry_run: opt.DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    flags = [arrived or bool(sent), not_arrived, accept_risk, discard]
    verb = _verb(dict(zip(_VERBS, flags, strict=True)), copy=new_id, ask=ask)
    if sum(map(bool, (names, biz, state, sent))) != 1:
        raise WrongUsage("give IDs, or --biz-id, or --state with --since, or --sent")
    if not state and (lane or account or row_reason or limit or in_doubt):
        raise WrongUsage("--lane, --account, --reason-code, --limit and --in-doubt want --state")
    _check_filters(state or (), since, row_reason, verb)
    if verb in _VERBS and not reason and not sent:
        raise WrongUsage(
            f"--{verb.replace('_', '-')} wants --reason TEXT: it is a person's decision"
        )
    longest_ms = age_ms("--since", since)
    settings = settings_of(context)
    from recovery.operator_rules import OperatorNote
    from recovery.resend.desk import ResendOrders, open_desk
    from recovery.resend.selection import Filters

    filters = Filters(state or (), patterns(lane) or (), longest_ms, account, row_reason)
    note = OperatorNote(author_of(author), reason)
    orders = ResendOrders(verb, note, job or f"job-{secrets.token_hex(4)}", dry_run)
    with ExitStack() as stack:
        desk = open_desk(settings, stack, orders)
        heading = {"job": orders.job if new_id else None, "dry_run": dry_run, "author": note.author}
        output = ResendOutput(as_json=as_json, heading=heading)
        if state:
            more, found = _selected(desk, filters, limit, output, in_doubt=in_doubt), True
        else:
            more, found = False, _named(desk, names or ([sent] if sent else []), biz, output)
    output.end(orders.job if new_id else "", found=found, more=more, dry_run=dry_run)


def _check_filters(states: Sequence[str], since: str | None, row_reason: str, verb: str) -> None:
    """Raises WrongUsage for an incomplete selection."""
    if bool(states) != bool(since):
        raise WrongUsage("--state wants --since, and --since wants --state")
    if "DROPPED" in map(str.upper, states):
        _check_dropped(verb, row_reason)


def _check_dropped(verb: str, row_reason: str) -> None:
    """Raises WrongUsage, unless dropped deliveries of one reason are to be copied."""
    from message.reasons import DROP_CODES, resend_of_dropped

    if not row_reason:
        raise WrongUsage(
            "--state DROPPED wants --new-id and --reason-code, since each reason has a way of its own: "
            + ", ".join(DROP_CODES)
        )
    if verb != "copy":
        raise WrongUsage(f"--state DROPPED: {resend_of_dropped(row_reason)}")


def _verb(given: dict[str, bool], *, copy: bool, ask: bool) -> str:
    chosen = [name for name, on in (given | {"copy": copy, "ask": ask}).items() if on]
    if len(chosen) > 1:
        raise WrongUsage(
            "give one of --new-id, --arrived, --not-arrived, --accept-risk, --ask and --discard"
        )
    return chosen[0] if chosen else "again"


def _named(desk: ResendDesk, names: Sequence[str], biz: str | None, output: ResendOutput) -> bool:
    """Acts on what is named. Returns whether all of it was found."""
    found = True
    if biz:
        found = _in_chunks(desk.picks.pages_of_biz(biz), desk.act, output)
        if not found:
            complain(
                f"nothing is known of the business id {biz!r}; the archive is searched by ID alone"
            )
    for name in names:
        known = _in_chunks(desk.picks.pages_named(name), desk.act, output)
        known = known or _in_chunks([desk.archived.find(name)], desk.act_on_archived, output)
        if not known:
            complain(f"nothing is known of {name!r}")
            found = False
    return found


def _in_chunks(
    pages: Iterable[Sequence[_T]],
    act: Callable[[Sequence[_T]], list[OperatorResult]],
    output: ResendOutput,
) -> bool:
    """Acts page by page. Returns whether there was anything."""
    some = False
    for chunk in _chunks(pages):
        some = True
        output.take(act(chunk))
    return some


def _selected(
    desk: ResendDesk, filters: Filters, limit: int | None, output: ResendOutput, *, in_doubt: bool
) -> bool:
    """Acts page by page. Rows that were moved match no more, so a repeat goes on where this one ended.
    Returns whether more match than the limit."""
    from recovery.operator_results import OperatorVerdict
    from recovery.resend.selection import alone, archived_note, wanted

    orders, now = desk.orders, desk.ledger.now_ms()
    doubted = _DOUBTED.get(orders.verb, None if in_doubt else False)
    chosen = wanted(filters, _STATES[orders.verb], now, doubted=doubted)
    if note := archived_note(desk.archived, chosen.since):
        err().print(note)
    left = limit
    with alone(desk.ledger, orders.job, dry_run=orders.dry_run) as still:
        for chunk in _chunks(desk.picks.pages(chosen, now)):
            while chunk:
                if left == 0:
                    return True
                still()
                results = desk.act(chunk[:left], selected=True)
                chunk = chunk[len(results) :]
                output.take(results)
                if left is not None:
                    left -= sum(one.verdict is not OperatorVerdict.COPIED_BEFORE for one in results)
    return False


def _chunks(pages: Iterable[Sequence[_T]]) -> Iterator[Sequence[_T]]:
    for page in pages:
        for start in range(0, len(page), _CHUNK):
            yield page[start : start + _CHUNK]
