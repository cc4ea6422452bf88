"""`hongyan templates apply` and `hongyan templates history`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.author import author_of
from hongyan.errors import WrongUsage
from hongyan.flags import MOST_ROWS, MOST_VERSION
from hongyan.tables import listing
from hongyan.terminal import DONE, PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from policy.templates.versions import TemplateVersion
    from sending.template_change import TemplatePlan

APPLY = explained(
    "Put templates in force, with the files that they name: every worker and recovery follows them within "
    "seconds, without a restart. Exits 1 if another version than the expected one is in force, or "
    "templates are removed and --yes is not given.",
    "hongyan templates apply templates.toml --dry-run",
    "hongyan templates apply templates.toml --expect t3 --author 'ci: 4f2c9e1'",
)
HISTORY = explained(
    "Show who applied which templates when; with a NUMBER, what that version changed.",
    "hongyan templates history",
    "hongyan templates history 3",
    "hongyan templates history 3 --text > templates.toml",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_MS = 1_000


def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The templates, as templates.toml.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what it would do.", metavar="")
    ] = False,
    author: Annotated[
        str, typer.Option(metavar="NAME", help="Who applies them.", show_default="user@host")
    ] = "",
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="tN",
            help="Only if this version is in force; t0: none was ever applied.",
            show_default="the one that the changes are shown against",
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Also if templates are removed.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    expected = _number(expect) if expect else None
    who = author_of(author)
    settings = settings_of(context)
    from hongyan.database import existing
    from policy.templates.loading import load_source
    from sending.template_change import apply_templates, plan_templates

    _templates, source = load_source(file)
    version, refused = None, False
    with closing(existing(settings)) as database:
        plan = plan_templates(settings, database, str(file), source, expected)
        refused = bool(plan.removed) and not yes
        if plan.wanted and not refused and not dry_run:
            version = apply_templates(database, plan, who, removes=yes)
    if as_json:
        _print_json(plan, version, dry_run=dry_run)
    else:
        _say(plan, version, refused=refused)
    raise typer.Exit(PROBLEMS if refused else DONE)


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
        bool, typer.Option("--text", help="With NUMBER: the text as applied.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from hongyan.database import existing
    from policy.templates.versions import TemplateVersions

    with closing(existing(settings)) as database:
        versions = TemplateVersions(database)
        one = versions.numbered(number) if number is not None else None
        found = versions.history(limit) if number is None else []
    if number is not None and one is None:
        raise WrongUsage(f"there is no version {number}; see `hongyan templates history`")
    if as_json:
        print_json(one if one is not None else found)
    elif one is not None:
        print(one.source.text if text else one.diff, end="")
    else:
        _table(found)


def _number(expect: str) -> int:
    """Returns 3 for `t3`, `3` or the whole name `t3:9f…`. Raises WrongUsage."""
    number = expect.partition(":")[0].removeprefix("t")
    if not (number.isascii() and number.isdigit()):
        raise WrongUsage(
            f"--expect {expect!r}: write a version such as t3; see `hongyan templates history`"
        )
    return int(number)


def _print_json(plan: TemplatePlan, version: TemplateVersion | None, *, dry_run: bool) -> None:
    print_json(
        {
            "before": plan.now.templates.version,
            "applied": version.name if version is not None else None,
            "dry_run": dry_run,
            "added": plan.added,
            "changed": plan.changed,
            "removed": plan.removed,
            "unsendable": plan.unsendable,
            "expected": f"t{plan.now.number}",
        }
    )


def _say(plan: TemplatePlan, version: TemplateVersion | None, *, refused: bool) -> None:
    if not plan.wanted:
        out().print(f"{plan.now.templates.version} says so already; nothing to apply")
        return
    for what, names in (
        ("added", plan.added),
        ("changed", plan.changed),
        ("removed", plan.removed),
    ):
        for name in names:
            out().print(f"{what}: {name}", markup=False)
    for sentence in plan.unsendable:
        err().print(f"warning: {sentence}", markup=False)
    if refused:
        complain(f"{', '.join(plan.removed)} would be removed: give --yes if that is meant")
    elif version is not None:
        out().print("applied", style="green", end=" ")
        out().print(f"{version.name} by {version.author}")
    else:
        expect = f"--expect t{plan.now.number} applies it against what is shown here"
        err().print(f"dry run: nothing was applied; {expect}", style="dim")


def _table(found: Sequence[TemplateVersion]) -> None:
    if not found:
        out().print("no templates were ever applied: the file counts")
        return
    table = listing(("VERSION", "AT", "AUTHOR"), whole=("VERSION", "AT"))
    for version in found:
        at = datetime.fromtimestamp(version.at / _MS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        table.add_row(version.name, at, version.author)
    out().print(table)
