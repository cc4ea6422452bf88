"""`hongyan config`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hongyan.tables import listing
from hongyan.terminal import (
    DONE,
    PROBLEMS,
    Options,
    complain,
    err,
    explained,
    out,
    placed,
    print_json,
    settings_of,
)

app = typer.Typer(
    name="config", help="The configuration: its values and problems.", no_args_is_help=True
)

SHOW = explained(
    "Show every setting in force and where it comes from: the default, a line of the file, or an "
    "environment variable. Secrets are masked. Without --all, settings that have their default are left "
    "out.",
    "hongyan config show",
    "hongyan config show --all",
    "hongyan -c /etc/hongyan.toml config show --json",
)
CHECK = explained(
    "Report every problem of the configuration with its place: settings, variables, addresses, URLs, "
    "accounts, policy, templates, and files that are named and missing. Asks no server. Exits 1 if there "
    "is a problem.",
    "hongyan config check",
    "hongyan -c /etc/hongyan.toml config check --json",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Include settings that have their default.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from backends.settings import file_of
    from hongyan.output.settings import DEFAULT, settings_shown

    options: Options = context.find_root().obj
    file = file_of(options.config, os.environ)
    rows = settings_shown(settings)
    if as_json:
        print_json({"file": file and str(file), "settings": [row._asdict() for row in rows]})
        return
    from rich.text import Text

    table = listing(("SETTING", "VALUE", "FROM"), whole=("SETTING",))
    for row in rows:
        if every or row.origin != DEFAULT:
            table.add_row(*map(Text, (row.key, row.text, row.origin)))
    out().print(table)
    where = f"file {file}" if file else "there is no file, so defaults and variables hold"
    hidden = "" if every else "; --all shows the defaults, too"
    err().print(f"{where}{hidden}", style="dim")


@app.command("check", help=CHECK)
def check(context: typer.Context, as_json: _JSON = False) -> None:
    from backends.settings import SettingsError
    from hongyan.configuration import Findings, findings_of

    try:
        found = findings_of(settings_of(context))
    except SettingsError as exc:
        found = Findings([*exc.texts], [])
    problems = [placed(text) for text in found.problems]
    warnings = [placed(text) for text in found.warnings]
    if as_json:
        print_json({"problems": problems, "warnings": warnings})
        raise typer.Exit(PROBLEMS if problems else DONE)
    for problem in problems:
        complain(problem)
    for warning in warnings:
        err().print(f"warning: {warning}", markup=False)
    if problems:
        err().print(f"{len(problems)} problem{'s' if problems[1:] else ''}")
        raise typer.Exit(PROBLEMS)
    out().print("[green]ok[/] no problem was found", markup=True)
