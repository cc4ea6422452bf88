"""`hongyan resend`."""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.errors import WrongUsage
from hongyan.flags import duration_ms
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.opening import SqlLedger
    from idempotency.recovering_picks import Pick, Picks, Wanted
    from recovery.operator import Operator, Told

HELP = explained(
    "Have deliveries sent again that ended badly: by delivery key, message id or business id, or all of a "
    "state. Recovery sends them; what is under way, or was sent, is left alone and said so. --new-id makes "
    "a second copy instead, under an id of its own. Exits 1 if any was refused.",
    "hongyan resend 0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "hongyan resend --biz order-1001 --new-id",
    "hongyan resend --state PARKED --lane 'sms.*' --since 6h --dry-run",
    "hongyan resend --sent 5d0f6c1e9a7b4c3d8e2f1a0b9c8d7e6f",
)
_SHOWN = 50
_CHUNK = 200
_LEASE_MS = 60_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("resend", help=HELP, short_help="Have deliveries sent again.")(resend)


def resend(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Delivery keys or message ids.")
    ] = None,
    biz: Annotated[str | None, typer.Option("--biz", metavar="ID", help="A business id.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="PARKED, REJECTED or EXPIRED; repeat it."),
    ] = None,
    lane: Annotated[
        list[str] | None, typer.Option("--lane", metavar="PATTERN", help="With --state.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="AGO", help="With --state: made in the last 90m, 6h, 7d."),
    ] = None,
    in_doubt: Annotated[
        bool,
        typer.Option(
            "--in-doubt", help="With --state: also what an earlier call may have sent.", metavar=""
        ),
    ] = False,
    new_id: Annotated[bool, typer.Option("--new-id", help="A second copy.", metavar="")] = False,
    job: Annotated[
        str, typer.Option("--job", metavar="NAME", help="With --new-id: go on with that job.")
    ] = "",
    sent: Annotated[
        str, typer.Option("--sent", metavar="KEY", help="Say that this delivery arrived.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.", metavar="")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    """See HELP."""
    if sum(map(bool, (names, biz, state, sent))) != 1:
        raise WrongUsage("give IDs, or --biz, or --state with --since, or --sent")
    if bool(state) != bool(since) or (lane and not state):
        raise WrongUsage("--state wants --since, and --lane and --since want --state")
    if sent and (new_id or dry_run):
        raise WrongUsage("--sent goes with no other flag but --json")
    settings = settings_of(context)
    job = job or f"job-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        ledger, operator, picks = _opened(settings, stack)
        if state:
            wanted = _wanted(state, lane, since or "", ledger.now_ms())
            found = _selected(ledger, picks, wanted, job, in_doubt=in_doubt, dry_run=dry_run)
        else:
            found = iter([_named(picks, names or ([sent] if sent else []), biz)])
        act = _act(settings, operator, job, arrived=bool(sent), new_id=new_id, dry_run=dry_run)
        told = _Told(shown=not as_json)
        for some in found:
            for start in range(0, len(some), _CHUNK):
                told.take(act(some[start : start + _CHUNK]))
    told.end(job if new_id else "", named=not state, dry_run=dry_run, as_json=as_json)


class _Told:
    """What was said so far: all of it for programs, the first ones and sums for people."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._kept: list[Told] = []
        self._sums: Counter[str] = Counter()

    def take(self, some: Sequence[Told]) -> None:
        """Show and count them."""
        for one in some:
            if self._shown and self._sums.total() < _SHOWN:
                _show(one)
            self._sums[one.verdict.value] += 1
        if not self._shown:
            self._kept += some
        elif self._sums.total() > _SHOWN and sys.stderr.isatty():
            err().print(f"{self._sums.total():,} …")

    def end(self, job: str, *, named: bool, dry_run: bool, as_json: bool) -> None:
        """The sums; exits 1 where nothing of that name was found, or some were refused."""
        if as_json:
            print_json({"job": job or None, "dry_run": dry_run, "deliveries": self._kept})
        else:
            sums = ", ".join(f"{count:,} {verdict}" for verdict, count in self._sums.items())
            would = " (dry run: nothing was changed)" if dry_run else ""
            out().print(f"{sums or 'nothing found'}{would}{f'  job {job}' if job else ''}")
        if (named and not self._sums) or self._sums["refused"] or self._sums["overtaken"]:
            raise typer.Exit(PROBLEMS)


def _opened(settings: Settings, stack: ExitStack) -> tuple[SqlLedger, Operator, Picks]:
    from idempotency.opening import open_ledger
    from idempotency.recovering_picks import Picks
    from policy.loading import load_for
    from recovery.operator import Operator
    from tracing import open_recorder

    ledger = open_ledger(settings)
    stack.callback(ledger.close)
    recorder = open_recorder(settings)
    stack.callback(recorder.close)
    policy = load_for(settings)
    operator = Operator(
        ledger.recovering(), ledger.queries(), policy, recorder, now_ms=ledger.now_ms
    )
    return ledger, operator, Picks(ledger.database)


def _named(picks: Picks, names: Sequence[str], biz: str | None) -> list[Pick]:
    found = picks.of_biz(biz) if biz else []
    for name in names:
        some = picks.named(name)
        if not some:
            complain(f"nothing is known of {name!r}")
        found += some
    return found


def _wanted(states: Sequence[str], lanes: list[str] | None, since: str, now: int) -> Wanted:
    from hongyan.lanes import patterns
    from idempotency.recovering_picks import Wanted
    from message.states import State
    from message.vocabulary import lanes_matching

    allowed = {s.value: s for s in (State.PARKED, State.REJECTED, State.EXPIRED)}
    unknown = [name for name in states if name.upper() not in allowed]
    if unknown:
        raise WrongUsage(f"--state {unknown[0]}: write {', '.join(allowed)}")
    return Wanted(
        [allowed[name.upper()] for name in states],
        [one.name for one in lanes_matching(patterns(lanes) or ["*"])],
        now - duration_ms("--since", since),
    )


def _selected(
    ledger: SqlLedger, picks: Picks, wanted: Wanted, job: str, *, in_doubt: bool, dry_run: bool
) -> Iterator[list[Pick]]:
    """Page by page, by one job at a time; what was moved is not met again, so it may be begun anew."""
    now = ledger.now_ms()
    with _alone(ledger, job, dry_run=dry_run) as still:
        for page in picks.pages(wanted, now):
            still()
            yield [pick for pick in page if in_doubt or not pick.doubted]


@contextmanager
def _alone(ledger: SqlLedger, job: str, *, dry_run: bool) -> Iterator[Callable[[], None]]:
    from recovery.operator import DUTY

    rows, holder = ledger.recovering(), f"{job}-{secrets.token_hex(4)}"

    def hold() -> None:
        if not dry_run and not rows.hold(DUTY, holder, _LEASE_MS):
            raise WrongUsage(
                "another resend job is under way: wait for its end, or a minute after it"
            )

    hold()
    try:
        yield hold
    finally:
        rows.drop(DUTY, holder)


def _act(
    settings: Settings, operator: Operator, job: str, *, arrived: bool, new_id: bool, dry_run: bool
) -> Callable[[Sequence[Pick]], list[Told]]:
    if new_id:
        return lambda picks: _copied(settings, operator, picks, job, dry_run=dry_run)
    if arrived:
        return lambda picks: [operator.arrived(pick) for pick in picks]
    return lambda picks: operator.again(picks, dry_run=dry_run)


def _copied(
    settings: Settings, operator: Operator, picks: Sequence[Pick], job: str, *, dry_run: bool
) -> list[Told]:
    """Told as copied once Kafka acknowledged them all; else the job says how to go on."""
    from hongyan import sending
    from recovery.operator import Copy

    made = [operator.copy(pick, job) for pick in picks]
    copies = [one for one in made if isinstance(one, Copy)]
    if copies and not dry_run:
        outcome = sending.Outcome()
        sender = sending.Sender(settings.kafka, outcome)
        for copy in copies:
            sender.send(sending.prepared(copy.fields, copy.fields["created_at"]))
        sender.finish(30.0)
        if not outcome.ok:
            raise WrongUsage(
                "Kafka did not acknowledge every copy: run it again with --job "
                f"{job}, which doubles nothing"
            )
    return [one.told if isinstance(one, Copy) else one for one in made]


def _show(told: Told) -> None:
    from rich.text import Text

    verdict = told.verdict.value
    style = "yellow" if verdict in ("refused", "overtaken") else "green"
    rest = [told.delivery_key, told.lane, told.state]
    rest += [f"→ {told.new_id}"] if told.new_id else []
    rest += [told.detail] if told.detail else []
    out().print(Text.assemble((f"{verdict:<9} ", style), "  ".join(rest)))
