"""`hongyan policy apply` and `hongyan policy history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hongyan.flags import whoami
from hongyan.terminal import DONE, PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.opening import SqlLedger
    from policy.changes import Change, Effect
    from policy.in_force import InForce
    from policy.schema import Policy
    from policy.versions import Version

APPLY = explained(
    "Put a policy in force: every worker and recovery acts under it within seconds, without a restart. "
    "Shows what changes and what that means for deliveries that wait. Exits 1 if it must not be applied "
    "now.",
    "hongyan policy apply policy.toml --dry-run",
    "hongyan policy apply policy.toml --author 'ci: 4f2c9e1'",
)
HISTORY = explained(
    "Show who applied which policy when; with a NUMBER, what that version changed.",
    "hongyan policy history",
    "hongyan policy history 12",
    "hongyan policy history 12 --text > policy.toml && hongyan policy apply policy.toml",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_LINES_AT_MOST = 40
_MS = 1_000


class Plan(NamedTuple):
    """What applying would do."""

    now: InForce
    policy: Policy
    content: str
    changes: Sequence[Change]
    effects: Sequence[Effect]
    refusals: Sequence[str]


def register(app: typer.Typer) -> None:
    """Add the commands to `hongyan policy`."""
    app.command("apply", help=APPLY)(apply)
    app.command("history", help=HISTORY)(history)


def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as policy.toml.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what it would do.", metavar="")
    ] = False,
    author: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Who changes it.", show_default="user@host"),
    ] = "",
    as_json: _JSON = False,
) -> None:
    """See APPLY."""
    settings = settings_of(context)
    ledger = _ledger(settings)
    try:
        plan = _plan(settings, ledger, file)
        wanted = bool(plan.content != plan.now.text or plan.now.number == 0)
        version = None
        if wanted and not plan.refusals and not dry_run:
            version = _apply(ledger, plan, author or whoami())
    finally:
        ledger.close()
    if as_json:
        print_json(_as_json(plan, version, dry_run=dry_run))
    else:
        _say(plan, version, wanted=wanted)
    raise typer.Exit(PROBLEMS if plan.refusals else DONE)


def history(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", help="One version.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = 20,
    text: Annotated[
        bool, typer.Option("--text", help="With NUMBER: the policy as it was applied.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    """See HISTORY."""
    settings = settings_of(context)
    from contextlib import closing

    from hongyan.database import existing
    from hongyan.errors import WrongUsage
    from policy.versions import Versions

    with closing(existing(settings)) as database:
        versions = Versions(database)
        one = versions.numbered(number) if number is not None else None
        if number is not None and one is None:
            raise WrongUsage(f"there is no version {number}; see `hongyan policy history`")
        found = [one] if one is not None else versions.history(limit)
    if as_json:
        print_json(found[0] if one is not None else found)
    elif one is not None:
        print(one.text if text else one.diff, end="")
    else:
        _table(found)


def _ledger(settings: Settings) -> SqlLedger:
    """The ledger, which is not made by looking into it."""
    from hongyan.database import existing
    from idempotency.opening import open_ledger

    existing(settings).close()
    return open_ledger(settings)


def _plan(settings: Settings, ledger: SqlLedger, file: Path) -> Plan:
    from channels.registry import accounts_for
    from idempotency.waiting import waiting
    from message.vocabulary import LANES
    from policy.changes import changes, effects, refusals
    from policy.in_force import in_force
    from policy.loading import load, read
    from policy.versions import Versions

    policy = load(file, settings.accounts)
    for lane in LANES:
        if names := policy.of(lane).account_names:
            accounts_for(lane, settings.accounts, names)
    now = in_force(settings, Versions(ledger.database))
    found, rows = changes(now.policy, policy), waiting(ledger.database)
    return Plan(
        now,
        policy,
        read(file).decode(),
        found,
        effects(now.policy, policy, found, rows),
        refusals(found, rows, ledger.live_lanes()),
    )


def _apply(ledger: SqlLedger, plan: Plan, author: str) -> Version:
    from policy.versions import Versions

    versions, now = Versions(ledger.database), plan.now
    return versions.add(plan.content, author, base=now.number, before=now.text)


def _as_json(plan: Plan, version: Version | None, *, dry_run: bool) -> dict[str, Any]:
    return {
        "before": plan.now.policy.version,
        "applied": version.name if version is not None else None,
        "dry_run": dry_run,
        "changes": [
            {"lane": c.lane.name, "key": c.key, "before": c.before, "after": c.after}
            for c in plan.changes
        ],
        "effects": [effect._asdict() for effect in plan.effects],
        "refusals": plan.refusals,
    }


def _say(plan: Plan, version: Version | None, *, wanted: bool) -> None:
    if not wanted:
        out().print(f"{plan.now.policy.version} says so already; nothing to apply")
        return
    _say_changes(plan)
    for refusal in plan.refusals:
        complain(refusal)
    if version is not None:
        out().print(f"[green]applied[/] {version.name} by {version.author}", highlight=False)
    elif not plan.refusals:
        err().print("dry run: nothing was applied", style="dim")


def _say_changes(plan: Plan) -> None:
    from policy.changes import grouped

    groups = grouped(plan.changes)
    for key, before, after, lanes in groups[:_LINES_AT_MOST]:
        names = ", ".join(lane.name for lane in lanes[:3])
        more = f" and {len(lanes) - 3} more" if len(lanes) > 3 else ""
        out().print(f"[bold]{key}[/]: {_value(before)} → {_value(after)}  ", end="")
        out().print(f"{names}{more}", style="dim", markup=False)
    if len(groups) > _LINES_AT_MOST:
        out().print(f"… and {len(groups) - _LINES_AT_MOST} more; see --json")
    if not groups:
        out().print("no lane's policy changes")
    for effect in plan.effects:
        out().print(f"{effect.rows:,} waiting in {effect.lane}: {effect.text}", markup=False)


def _value(value: Any) -> str:
    from rich.markup import escape

    shown = "unset" if value is None else str(value)
    return escape(shown)


def _table(found: Sequence[Version]) -> None:
    from rich.table import Table

    if not found:
        out().print("no policy was ever applied: the file counts")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("VERSION", "AT", "AUTHOR", "LINES"):
        table.add_column(title, no_wrap=title != "AUTHOR")
    for version in found:
        at = datetime.fromtimestamp(version.at / _MS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        table.add_row(version.name, at, version.author, _lines(version.diff))
    out().print(table)


def _lines(diff: str) -> str:
    """`+3 −1`."""
    lines = diff.splitlines()[2:]
    added = sum(line.startswith("+") for line in lines)
    return f"+{added} −{sum(line.startswith('-') for line in lines)}"
