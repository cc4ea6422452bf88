"""`hongyan policy apply` and `hongyan policy history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import MOST_ROWS, MOST_VERSION
from hongyan.tables import listing
from hongyan.terminal import DONE, PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.sql_ledger import SqlLedger
    from policy.versions import Version
    from sending.policy_change import PolicyPlan

APPLY = explained(
    "Put a policy in force: every worker and recovery follows it within seconds, without a restart. "
    "Shows the changes and their effects on waiting deliveries. Exits 1 if it must not be applied "
    "now: a lane at work cannot follow, another version than the expected one is in force, or whole "
    "tables are dropped and --yes is not given.",
    "hongyan policy apply policy.toml --dry-run",
    "hongyan policy apply policy.toml --expect v12",
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


def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as policy.toml.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what it would do.", metavar="")
    ] = False,
    author: Annotated[
        str,
        typer.Option(metavar="NAME", help="Who applies it.", show_default="user@host"),
    ] = "",
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="vN",
            help="Only if this version is in force; v0: none was ever applied.",
            show_default="the one that the changes are shown against",
        ),
    ] = "",
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Also if whole tables of the policy are dropped.", metavar=""),
    ] = False,
    as_json: _JSON = False,
) -> None:
    expected = _number(expect) if expect else None
    who = author_of(author)
    settings = settings_of(context)
    ledger = _ledger(settings)
    try:
        plan = _plan(settings, ledger, file, expected)
        if plan.drop_sentence and not yes:
            unconfirmed = f"{plan.drop_sentence}: give --yes if that is meant"
            plan = plan._replace(refusals=[*plan.refusals, unconfirmed])
        version = None
        if plan.wanted and not plan.refusals and not dry_run:
            version = _apply(ledger, plan, who, drops=yes)
    finally:
        ledger.close()
    if as_json:
        print_json(_as_json(plan, version, dry_run=dry_run))
    else:
        _say(plan, version)
    raise typer.Exit(PROBLEMS if plan.refusals else DONE)


def history(
    context: typer.Context,
    number: Annotated[
        int | None,
        typer.Argument(
            min=1, max=MOST_VERSION, metavar="[NUMBER]", help="One version.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, help="Most versions.")
    ] = 20,
    text: Annotated[
        bool, typer.Option("--text", help="With NUMBER: the policy as it was applied.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from contextlib import closing

    from hongyan.database import existing
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
    """Opens the ledger. Raises SettingsError for a missing SQLite file."""
    from hongyan.database import existing
    from idempotency.sql_ledger import open_ledger

    existing(settings).close()
    return open_ledger(settings)


def _number(expect: str) -> int:
    """Returns 12 for `v12`, `12` or the whole name `v12:3f…`. Raises WrongUsage."""
    number = expect.partition(":")[0].removeprefix("v")
    if not (number.isascii() and number.isdigit()):
        raise WrongUsage(
            f"--expect {expect!r}: write a version such as v12; see `hongyan policy history`"
        )
    return int(number)


def _plan(settings: Settings, ledger: SqlLedger, file: Path, expected: int | None) -> PolicyPlan:
    from policy.loading import load, read
    from sending.policy_change import plan

    load(file, settings.accounts)  # raises for bytes that are not UTF-8, too
    return plan(settings, ledger, str(file), read(file).decode(), expected)


def _apply(ledger: SqlLedger, plan: PolicyPlan, author: str, *, drops: bool) -> Version:
    from sending.policy_change import apply as put_in_force

    return put_in_force(ledger, plan, author, drops=drops)


def _as_json(plan: PolicyPlan, version: Version | None, *, dry_run: bool) -> dict[str, Any]:
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
        "warnings": plan.warnings,
        "expected": f"v{plan.now.number}",
        "dropped": plan.dropped,
        "resets": [{"lane": c.lane.name, "key": c.key, "after": c.after} for c in plan.resets],
    }


def _say(plan: PolicyPlan, version: Version | None) -> None:
    if not plan.wanted:
        out().print(f"{plan.now.policy.version} says so already; nothing to apply")
        return
    _say_changes(plan)
    for refusal in plan.refusals:
        complain(refusal)
    for warning in plan.warnings:
        err().print(f"warning: {warning}", markup=False)
    if version is not None:
        out().print("applied", style="green", end=" ")
        out().print(f"{version.name} by {version.author}")
    elif not plan.refusals:
        expect = f"--expect v{plan.now.number} applies it against what is shown here"
        err().print(f"dry run: nothing was applied; {expect}", style="dim")


def _say_changes(plan: PolicyPlan) -> None:
    from policy.diff import grouped

    groups = grouped(plan.changes)
    for key, before, after, lanes in groups[:_LINES_AT_MOST]:
        names = ", ".join(lane.name for lane in lanes[:3])
        more = f" and {len(lanes) - 3} more" if len(lanes) > 3 else ""
        out().print(key, style="bold", end="")
        out().print(f": {_value(before)} → {_value(after)}  ", end="")
        out().print(f"{names}{more}", style="dim", markup=False)
    if len(groups) > _LINES_AT_MOST:
        out().print(f"… and {len(groups) - _LINES_AT_MOST} more; see --json")
    if not groups:
        out().print("no lane's policy changes")
    for effect in plan.effects:
        out().print(f"{effect.rows:,} waiting in {effect.lane}: {effect.text}", markup=False)


def _value(value: Any) -> str:
    return "unset" if value is None else str(value)


def _table(found: Sequence[Version]) -> None:
    if not found:
        out().print("no policy was ever applied: the file counts")
        return
    table = listing(("VERSION", "AT", "AUTHOR", "LINES"), whole=("VERSION", "AT", "LINES"))
    for version in found:
        at = datetime.fromtimestamp(version.at / _MS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        table.add_row(version.name, at, version.author, _lines(version.diff))
    out().print(table)


def _lines(diff: str) -> str:
    """Returns the counts of added and removed lines as `+3 −1`."""
    lines = diff.splitlines()[2:]
    added = sum(line.startswith("+") for line in lines)
    return f"+{added} −{sum(line.startswith('-') for line in lines)}"
